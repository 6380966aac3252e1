"""The points of the robustness figure: one factor at a time around two central settings.

The two are Algorithm 1 with a warm-up (the paper's) and ESGD as shipped, both at one learning rate.
Every point is a trial with fixed settings, known in advance; many points share a trial.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from equilibrate.optim import ALGORITHM_1, ESGD
from equilibrate.paper.figure import Records
from equilibrate.paper.row_column_sgd import RowColumnSGD
from equilibrate.study.methods import Method
from equilibrate.study.naming import canonical
from equilibrate.study.outcome import final_error
from equilibrate.study.stacked_rules import complete

METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("sgd", torch.optim.SGD, {}),
        Method("esgd", ESGD, {}),
        Method("rmsprop", torch.optim.RMSprop, {}),
        Method("row-column", RowColumnSGD, {}),
    )
}

LITERAL = {**ALGORITHM_1, "probe_every": 20}
PAPER = {**LITERAL, "warmup_probes": 20}
SHIPPED = {name: complete(ESGD, {})[name] for name in ALGORITHM_1}
# What row-column equilibration shares with ESGD as shipped, so that the diagonal alone differs.
_ROW_COLUMN = ("damping", "decay", "probe_every", "distribution")
ROW_COLUMN = {name: SHIPPED[name] for name in _ROW_COLUMN}
RMSPROP = {"lr": 5e-4, "alpha": 0.95}  # the middle of the paper's range
PAPER_DAMPING: float = ALGORITHM_1["damping"]

SERIES = {
    "paper": "Algorithm 1 with warm-up",
    "shipped": "ESGD as shipped",
    "literal": "Algorithm 1 to the letter",
    "row-column": "row-column online",
    "rmsprop": "RMSProp (damping: its eps)",
    "second": "Algorithm 1 with warm-up, the second task",
    "fast": "Algorithm 1 with warm-up, the larger learning rate",
}
PANELS = {
    "damping": "damping",
    "rate": "learning rate",
    "warmup": "vectors before the first step",
    "every": "steps between two probes",
    "decay": "forgetting, per step",
    "vectors": "probe vectors",
}
_NAMES = {
    "mnist": "MNIST",
    "curves-like": "CURVES-like",
    "curves-like-small": "CURVES-like, small network",
}


@dataclass(frozen=True)
class Task:
    """What is trained, how long, and the learning rate of its central settings."""

    problem: str
    epochs: int
    rate: float

    @property
    def name(self) -> str:
        """The problem as people read it."""
        return _NAMES.get(self.problem, self.problem)


@dataclass(frozen=True)
class Timing:
    """Updates of SGD against ESGD's, side by side, in stacks of `together` trials.

    They are timed as parts of a run of `epochs`: on a GPU a long run compiles the probing pass.
    """

    together: int = 8
    rounds: int = 15
    every: tuple[int, ...] = (1, 5, 20, 100)
    epochs: int = 2500  # of MNIST: 750,000 updates


@dataclass(frozen=True)
class Settings:
    """All that the records of the figure depend on."""

    task: Task = Task("mnist", 100, 0.03)
    second: Task | None = Task("curves-like", 100, 0.02)  # for the paper's damping alone
    damping: tuple[float, ...] = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
    relative: tuple[float, ...] = (1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0)
    eps: tuple[float, ...] = (1e-6, 1e-4, 1e-2, 1.0)
    rates: tuple[float, ...] = (0.003, 0.01, 0.03, 0.1, 0.3)
    row_column_rates: tuple[float, ...] = (0.03, 0.1)
    warmups: tuple[int, ...] = (1, 3, 20, 100)
    fast: float = 0.1  # the second learning rate of the warm-up panel
    every: tuple[int, ...] = (1, 5, 20, 100)
    decays: tuple[float | None, ...] = (None, 0.9999, 0.9995, 0.998, 0.99)
    seeds: int = 3  # of the two central settings
    timing: Timing = Timing()
    precision: str = "tf32"
    quick: bool = False


QUICK = Settings(
    task=Task("curves-like-small", 6, 0.03),
    second=None,
    damping=(1e-4, 1e-2, 1.0),
    relative=(1e-2, 1.0),
    eps=(1e-4,),
    rates=(0.03, 0.1),
    row_column_rates=(0.03,),
    warmups=(1, 20),
    every=(5, 20),
    decays=(None, 0.998),
    seeds=2,
    timing=Timing(together=1, rounds=9, every=(20,)),
    precision="float32",
    quick=True,
)


@dataclass(frozen=True)
class Point:
    """One mark of the figure: where it stands, and the trial whose final error it shows."""

    panel: str
    series: str
    x: float | str | None
    task: Task
    method: str
    settings: Mapping[str, Any] = field(hash=False)
    seed: int = 0


def points(chosen: Settings) -> list[Point]:
    """Return every mark, panel by panel."""
    makers = (_damping, _rates, _warmups, _every, _decays, _vectors)
    return [point for maker in makers for point in maker(chosen)]


def _esgd(chosen: Settings, panel: str, series: str, x: Any, /, **changed: Any) -> Point:
    """Return a point of ESGD with one of the central settings, something changed."""
    base = SHIPPED if series == "shipped" else LITERAL if series == "literal" else PAPER
    settings = {**base, "lr": chosen.task.rate, **changed}
    seed = settings.pop("trial_seed", 0)
    return Point(panel, series, x, chosen.task, "esgd", settings, seed)


def _damping(chosen: Settings) -> Iterator[Point]:
    for x in chosen.damping:
        yield _esgd(chosen, "damping", "paper", x, damping=x)
    for x in chosen.relative:
        yield _esgd(chosen, "damping", "shipped", x, damping=x)
    for x in chosen.eps:
        yield Point("damping", "rmsprop", x, chosen.task, "rmsprop", {**RMSPROP, "eps": x})
    for x in chosen.damping if chosen.second else ():
        assert chosen.second is not None
        settings = {**PAPER, "lr": chosen.second.rate, "damping": x}
        yield Point("damping", "second", x, chosen.second, "esgd", settings)


def _rates(chosen: Settings) -> Iterator[Point]:
    for series in ("literal", "paper", "shipped"):
        for x in chosen.rates:
            yield _esgd(chosen, "rate", series, x, lr=x)
    for x in chosen.row_column_rates:
        settings = {**ROW_COLUMN, "lr": x}
        yield Point("rate", "row-column", x, chosen.task, "row-column", settings)


def _warmups(chosen: Settings) -> Iterator[Point]:
    for series, rate in (("paper", chosen.task.rate), ("fast", chosen.fast)):
        for x in chosen.warmups:
            yield _esgd(chosen, "warmup", series, x, warmup_probes=x, lr=rate)


def _every(chosen: Settings) -> Iterator[Point]:
    for x in chosen.every:
        yield _esgd(chosen, "every", "paper", x, probe_every=x)


def _decays(chosen: Settings) -> Iterator[Point]:
    for x in chosen.decays:
        yield _esgd(chosen, "decay", "paper", x, decay=x)


def _vectors(chosen: Settings) -> Iterator[Point]:
    """Return the central settings at every seed, and with the other kind of vectors at one."""
    for series, base in (("paper", PAPER), ("shipped", SHIPPED)):
        for kind in ("gaussian", "rademacher"):
            central = base["distribution"] == kind
            for seed in range(chosen.seeds if central else 1):
                yield _esgd(chosen, "vectors", series, kind, distribution=kind, trial_seed=seed)


def errors(chosen: Settings, records: Records) -> dict[tuple[str, str], list[tuple[Any, float]]]:
    """Return (x, final error) of every series by panel and series; points not run are left out.

    The error is infinite where the trial diverged.
    """
    found = {
        _name(r["task"], r["method"], r["settings"], r["seed"]): final_error(r)
        for r in records
        if "task" in r
    }
    by_series: dict[tuple[str, str], list[tuple[Any, float]]] = {}
    for p in points(chosen):
        error = found.get(_name(p.task.problem, p.method, p.settings, p.seed))
        if error is not None:
            by_series.setdefault((p.panel, p.series), []).append((p.x, error))
    return by_series


def _name(task: str, method: str, settings: Mapping[str, Any], seed: int) -> str:
    return canonical([task, method, settings, seed])
