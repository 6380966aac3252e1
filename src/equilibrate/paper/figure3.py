"""Figure 3: learning curves of deep auto-encoders on MNIST and on CURVES-like images.

Every arm (`arms.py`) is the best of a random search with equally many trials over equally many
decades, at seed 0; on MNIST the winners go on to 750,000 updates, Sutskever's budget. They then
train with two more seeds, the first of which goes on as far. The error is the squared error over
the whole training set.

Arms that came later are rounds of their own: records without them are shown as they are.
"""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from equilibrate.paper import figure3_claims, figure3_drawing
from equilibrate.paper.arm_plan import ArmSearch, Round
from equilibrate.paper.arm_search import Problems, compute_searches, split
from equilibrate.paper.arms import ARMS, LATER, LATER_ROUNDS, PUBLISHED
from equilibrate.paper.figure import Description, Figure, Judgement, Records
from equilibrate.paper.records import Store
from equilibrate.study.problems import BUILT_IN
from equilibrate.study.progress import Progress
from equilibrate.study.search import Search

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture


@dataclass(frozen=True)
class Task:
    """One panel: a problem, the epochs of its search, and to how many its winners go on.

    An optional task is left out where its data files are not at hand.
    """

    problem: str
    epochs: int
    long_epochs: int
    arms: tuple[str, ...] = tuple(ARMS)
    optional: bool = False


@dataclass(frozen=True)
class Settings:
    """All that the records of the figure depend on."""

    tasks: tuple[Task, ...] = (Task("mnist", 1000, 2500), Task("curves-like", 1000, 1000))
    trials: int = 8
    seeds: int = 3
    precision: str = "tf32"
    timed_together: int = 16
    evaluate_every: float | None = None  # epochs; None means about a hundred points
    quick: bool = False
    seed: int = 0


QUICK = Settings(
    tasks=(
        Task("curves-like", 40, 40, ("sgd", "rmsprop", "jacobi", "esgd-warm", "esgd")),
        Task("mnist", 1, 1, ("sgd", "rmsprop", "esgd"), optional=True),
    ),
    trials=1,
    seeds=1,
    precision="float32",
    timed_together=1,
    evaluate_every=4,
    quick=True,
)


def settings(quick: bool) -> Settings:
    """Return the settings of the full or of the quick figure."""
    return QUICK if quick else Settings()


def units(chosen: Settings) -> float:
    """Return the work: trials times epochs."""
    return sum(_searched(chosen, task).work for task in chosen.tasks)


def _searched(chosen: Settings, task: Task) -> ArmSearch:
    """Return the search: all trials of an arm to its epochs, the best one of them further."""
    rungs = tuple(sorted({task.epochs, task.long_epochs}))
    return ArmSearch(
        figure="figure3",
        problem=task.problem,
        methods=ARMS,
        rounds=_rounds(chosen, task),
        search=Search(rungs, eta=max(2, chosen.trials)),
        epochs=task.epochs,
        seeds=range(1, chosen.seeds),
        seed_epochs=task.epochs,
        precision=chosen.precision,
        every=chosen.evaluate_every,
        timed_together=chosen.timed_together,
        carried=[arm for arm in task.arms if arm not in LATER],
        quick=chosen.quick,
        optional=task.optional,
    )


def _rounds(chosen: Settings, task: Task) -> list[Round]:
    first = [arm for arm in task.arms if arm not in LATER]
    later = [[arm for arm in task.arms if arm in arms] for arms in LATER_ROUNDS]
    return [{arm: _drawn(chosen, arm) for arm in arms} for arms in (first, *later) if arms]


def compute(
    chosen: Settings, store: Store, progress: Progress, problems: Problems = BUILT_IN
) -> Records:
    """Train every task's search and winners, time the arms, or read the records of all that."""
    asked = [_searched(chosen, task) for task in chosen.tasks]
    return compute_searches(asked, store, progress, problems)


def draw(chosen: Settings, records: Records) -> "Picture":
    """Draw the figure."""
    return figure3_drawing.draw(*split(records))


def describe(chosen: Settings, records: Records) -> Description:
    """Return caption and tables."""
    return figure3_drawing.describe(*split(records))


def claims(chosen: Settings, records: Records) -> list[Judgement]:
    """Judge the claims that rest on learning curves."""
    return figure3_claims.claims(*split(records))


def _drawn(chosen: Settings, arm: str) -> list[dict[str, Any]]:
    """Return the settings an arm is searched over; in a quick run, those published."""
    if chosen.quick:
        return [{**ARMS[arm].fixed, **PUBLISHED[arm]}]
    # What came later has the settings of an earlier arm, so that the two differ by one thing.
    drawn = ARMS[LATER.get(arm, arm)].settings(chosen.trials, seed=chosen.seed)
    own = ARMS[arm]
    return [{**own.fixed, **{name: found[name] for name in own.space}} for found in drawn]


FIGURE = Figure(
    name="figure3",
    title="Figure 3: learning curves of deep auto-encoders",
    settings=settings,
    units=units,
    compute=compute,
    draw=draw,
    describe=describe,
    claims=claims,
    needs_gpu=True,
    adds_seeds=True,
)
