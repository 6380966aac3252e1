"""ESGD with momentum against NAG, RMSProp with momentum, Adam and Jacobi with momentum.

The paper says that its results reach the state of the art when momentum is used, and shows none.
Here every arm (`momentum_arms.py`) has two rounds of nine trials on MNIST and CURVES-like images
with both code layers: all nine train for 30,000 updates, the best three for 120,000. The settings
of the best one of both rounds then train with three seeds for 750,000 updates, Sutskever's budget;
in one stack, which a GPU does sooner than one seed first and the others later. The error is the
squared error over the training set.

That is at a constant learning rate. In a second study, `falling`, it falls over the whole run
(`falling_arms.py`); in a third, `damped`, a few settings an arm with more damping train straight to
the end, where the winner is chosen (`damped_arms.py`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from equilibrate.paper import momentum_claims, momentum_drawing
from equilibrate.paper.arm_drawing import TITLES
from equilibrate.paper.arm_plan import ArmSearch, Round
from equilibrate.paper.arm_search import Problems, compute_searches, split
from equilibrate.paper.damped_arms import DAMPED
from equilibrate.paper.falling_arms import FALLING_ROUNDS
from equilibrate.paper.figure import Description, Figure, Judgement, Records
from equilibrate.paper.momentum_arms import MOMENTUM_ARMS, QUICK_SETTINGS, ROUNDS, grid
from equilibrate.paper.records import Store
from equilibrate.study.problems import BUILT_IN
from equilibrate.study.progress import Progress
from equilibrate.study.search import Search

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture


@dataclass(frozen=True)
class Task:
    """One column, in epochs: the rungs of its search, the winners' length, an evaluation every."""

    problem: str
    rungs: tuple[int, ...]
    epochs: int
    every: int


# 30,000, 120,000 and 750,000 updates: an epoch has 300 on MNIST and 100 on CURVES-like images.
_MNIST = (100, 400), 2500, 25
_CURVES = (300, 1200), 7500, 50


@dataclass(frozen=True)
class Settings:
    """All that the records of the figure depend on."""

    tasks: tuple[Task, ...] = (
        Task("mnist", *_MNIST),
        Task("mnist-linear", *_MNIST),
        Task("curves-like", *_CURVES),
        Task("curves-like-linear", *_CURVES),
    )
    study: str = "momentum"  # or "falling", or "damped"
    arms: tuple[str, ...] = tuple(MOMENTUM_ARMS)
    rates: int = 3  # learning rates that every momentum is tried with
    rounds: int = len(ROUNDS)  # of the search
    eta: int = 3  # one trial in so many passes a rung
    seeds: int = 3
    precision: str = "tf32"
    timed_together: int = 16
    quick: bool = False


_ROUNDS = {"momentum": ROUNDS, "falling": FALLING_ROUNDS, "damped": ()}

QUICK = Settings(
    tasks=(Task("curves-like", (1,), 2, 1),),
    seeds=1,
    precision="float32",
    timed_together=1,
    quick=True,
)


def settings(quick: bool, study: str = "momentum") -> Settings:
    """Return the settings of the full or of the quick figure."""
    return replace(QUICK if quick else Settings(), study=study, rounds=len(_ROUNDS[study]))


def units(chosen: Settings) -> float:
    """Return the work: trials times epochs."""
    return sum(_searched(chosen, task).work for task in chosen.tasks)


def _searched(chosen: Settings, task: Task) -> ArmSearch:
    if chosen.study == "damped":
        return _straight(chosen, task)
    return ArmSearch(
        figure=chosen.study,
        problem=task.problem,
        methods=MOMENTUM_ARMS,
        rounds=_rounds(chosen),
        search=Search(task.rungs, chosen.eta),
        epochs=task.rungs[-1],
        seeds=range(chosen.seeds),
        seed_epochs=task.epochs,
        precision=chosen.precision,
        every=task.every,
        timed_together=chosen.timed_together,
        quick=chosen.quick,
    )


def _straight(chosen: Settings, task: Task) -> ArmSearch:
    """Return the search whose trials all train to the end; only its winners have more seeds."""
    falling = _searched(replace(chosen, study="falling", rounds=1), task)
    rounds = DAMPED[task.problem][: 1 if chosen.quick else None]
    most = 1 if chosen.quick else None
    return replace(
        falling,
        figure=chosen.study,
        rounds=[{arm: own[arm][:most] for arm in chosen.arms} for own in rounds],
        search=Search((task.epochs,)),
        epochs=task.epochs,
        seeds=range(1, chosen.seeds),
        apart=True,
    )


def _rounds(chosen: Settings) -> list[Round]:
    rounds = _ROUNDS[chosen.study][: chosen.rounds]
    if chosen.quick:
        own = {arm: {**rounds[0][arm].fixed, **QUICK_SETTINGS[arm]} for arm in chosen.arms}
        return [{arm: [settings] for arm, settings in own.items()}]
    return [{arm: grid(each[arm], chosen.rates) for arm in chosen.arms} for each in rounds]


def compute(
    chosen: Settings, store: Store, progress: Progress, problems: Problems = BUILT_IN
) -> Records:
    """Train every task's search and winners, time the arms, or read the records of all that."""
    asked = [_searched(chosen, task) for task in chosen.tasks]
    return compute_searches(asked, store, progress, problems)


def _first_rungs(chosen: Settings) -> dict[str, int]:
    return {task.problem: task.rungs[0] for task in chosen.tasks}


def draw(chosen: Settings, records: Records) -> "Picture":
    """Draw the figure."""
    return momentum_drawing.draw(*split(records))


def describe(chosen: Settings, records: Records) -> Description:
    """Return caption and tables."""
    straight = chosen.study == "damped"
    found = momentum_drawing.describe(*split(records), _first_rungs(chosen), straight=straight)
    missing = _not_recorded(chosen, records)
    return replace(found, notes=(*found.notes, missing)) if missing else found


def _not_recorded(chosen: Settings, records: Records) -> str:
    """Say which arms of which task are missing, of those that have any."""
    there = {(record["task"], record["method"]) for record in split(records)[0]}
    told = []
    for task in (each.problem for each in chosen.tasks):
        missing = [arm for arm in chosen.arms if (task, arm) not in there]
        names = ", ".join(MOMENTUM_ARMS[arm].label for arm in missing)
        told += [f"{names} ({TITLES[task]})"] if 0 < len(missing) < len(chosen.arms) else []
    return f"Not trained yet: {'; '.join(told)}." if told else ""


def joint(chosen: Settings, records: Records, others: Mapping[str, Records]) -> list[Judgement]:
    """Judge S17, and S16 beside Figure 3's runs without momentum; a quick run judges neither."""
    if chosen.quick:
        return []
    plain, falling, damped = (
        split(others.get(name, ()))[0] for name in ("figure3", "falling", "damped")
    )
    own = split(records)[0]
    return momentum_claims.claims(own, plain, _first_rungs(chosen), falling, damped)


def _falling_alone(
    chosen: Settings, records: Records, others: Mapping[str, Records]
) -> list[Judgement]:
    """Judge S17 where the study at constant rates, which else does it, is not recorded."""
    if chosen.quick or "momentum" in others:
        return []
    damped = split(others.get("damped", ()))[0]
    return momentum_claims.claims([], [], _first_rungs(chosen), split(records)[0], damped)


FIGURE = Figure(
    name="momentum",
    title="ESGD with momentum against NAG, RMSProp + momentum, Adam, Jacobi + momentum",
    settings=settings,
    units=units,
    compute=compute,
    draw=draw,
    describe=describe,
    needs_gpu=True,
    adds_seeds=True,
    in_quick=False,
    joint=joint,
)

FALLING = replace(
    FIGURE,
    name="falling",
    title="The same with a learning rate that falls over the whole run",
    settings=partial(settings, study="falling"),
    joint=_falling_alone,
)


def _damped_alone(
    chosen: Settings, records: Records, others: Mapping[str, Records]
) -> list[Judgement]:
    """Judge S17 where neither of the other studies, which else do it, is recorded."""
    if chosen.quick or {"momentum", "falling"} & others.keys():
        return []
    own = split(records)[0]
    return momentum_claims.claims([], [], _first_rungs(chosen), damped=own)


DAMPED_FIGURE = replace(
    FALLING,
    name="damped",
    title="The same with more damping, every setting trained to the end",
    settings=partial(settings, study="damped"),
    joint=_damped_alone,
)
