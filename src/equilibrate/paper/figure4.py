"""Figure 4: how far RMSProp's, the equilibration and the Jacobi diagonals are from each other.

While auto-encoders train with RMSProp, the curvature diagonals are measured every few epochs: as
the paper did, by 100 probes, and by more, from which the estimator's noise can be removed
(`figure4_estimates`). Every probe has a training batch of its own, as in training, so that the
equilibration diagonal holds the variance between batches (T17), as ESGD's own does.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from equilibrate.paper import figure4_claims, figure4_drawing, figure4_joint, figure4_text
from equilibrate.paper.figure import Description, Figure, Judgement, Records
from equilibrate.paper.figure4_measuring import Prober, curvature, measure
from equilibrate.paper.records import Data, Store
from equilibrate.study.methods import METHODS
from equilibrate.study.problem import Problem
from equilibrate.study.problems import BUILT_IN
from equilibrate.study.progress import Progress
from equilibrate.study.stack import Stack
from equilibrate.study.trial import Trial

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture


LADDER = (10, 100, 250, 500, 1000)


@dataclass(frozen=True)
class Task:
    """One data set: how long to train, where to measure, and where with how many probes."""

    problem: str
    epochs: int
    every: int  # epochs between two points
    ladder: tuple[int, ...]  # epochs with all of `counts` and the extreme curvatures


@dataclass(frozen=True)
class Settings:
    """All that the records of the figure depend on."""

    tasks: tuple[Task, ...] = (
        Task("mnist", 1000, 10, LADDER),
        Task("curves-like", 1000, 10, LADDER),
    )
    # Inside the paper's ranges; fixed, not searched.
    lr: float = 5e-4
    alpha: float = 0.95
    eps: float = 1e-5
    damping: float = 1e-4  # of the other update directions: the paper's choice for ESGD
    probes: int = 100  # the paper's, for the literal distances
    counts: tuple[int, ...] = (25, 50, 100, 200, 400, 800, 1600, 3200)
    folds: int = 10  # that probes are split into: repairs need parts that share none
    lanczos_steps: int = 30
    lanczos_batches: int = 10
    seeds: int = 3
    precision: str = "tf32"
    version: int = 1


QUICK = Settings(
    tasks=(Task("curves-like", 12, 4, (4, 12)),),
    probes=20,
    counts=(10, 20, 40, 80),
    folds=4,
    lanczos_steps=12,
    lanczos_batches=1,
    seeds=1,
    precision="float32",
)


def settings(quick: bool) -> Settings:
    """Return the settings of the full or of the quick figure."""
    return QUICK if quick else Settings()


def points(task: Task) -> list[int]:
    """Return the epochs at which a task is measured."""
    return list(range(task.every, task.epochs + 1, task.every))


def counts(chosen: Settings, task: Task, epoch: int) -> list[int]:
    """Return the numbers of probes at a point, rising."""
    ladder = chosen.counts if epoch in task.ladder else ()
    return sorted({chosen.probes, *ladder})


def units(chosen: Settings) -> float:
    """Return the work in epochs of training; fifty probes are about one."""
    return float(sum(_units(chosen, task, e) for task in chosen.tasks for e in points(task)))


def _units(chosen: Settings, task: Task, epoch: int) -> float:
    return task.every + counts(chosen, task, epoch)[-1] / 50


def compute(
    chosen: Settings,
    store: Store,
    progress: Progress,
    problems: Mapping[str, Callable[[Path | None], Problem]] = BUILT_IN,
) -> Records:
    """Train and measure every task that has no record yet."""
    records = []
    for task in chosen.tasks:

        def run(task: Task = task) -> Data:
            return _measure_task(chosen, task, problems[task.problem](store.data), store, progress)

        record, computed = store.get("figure4", _key(chosen, task), run)
        if not computed:
            done = sum(_units(chosen, task, epoch) for epoch in points(task))
            progress.advance(done, computed=False)
        records.append({**record, "task": task.problem})
    return records


def _key(chosen: Settings, task: Task) -> dict[str, Any]:
    """Return what one task's record depends on; the other tasks are no part of it."""
    return {**asdict(chosen), "tasks": [], "task": asdict(task)}


def _measure_task(
    chosen: Settings, task: Task, problem: Problem, store: Store, progress: Progress
) -> Data:
    stack = Stack(problem, METHODS["rmsprop"], _trials(chosen, task, problem),
                  torch.device(store.device))  # fmt: skip
    prober = Prober(stack, chosen.folds, first_epoch=task.epochs)
    found: list[Data] = []
    for epoch in points(task):
        stack.advance(task.every * stack.batches.updates_per_epoch)
        point: Data = {"epoch": epoch, "errors": stack.errors()}
        point["counts"] = measure(prober, counts(chosen, task, epoch), chosen.damping)
        if epoch in task.ladder:
            steps, batches = chosen.lanczos_steps, chosen.lanczos_batches
            point["curvature"] = curvature(prober, steps, batches)
        found.append(point)
        progress.advance(_units(chosen, task, epoch))
    return {
        "name": problem.name,
        "fingerprint": problem.fingerprint,
        "parameters": prober.gradients.shape[-1],
        "seeds": [trial.seed for trial in stack.trials],
        "points": found,
    }


def _trials(chosen: Settings, task: Task, problem: Problem) -> list[Trial]:
    own = {"lr": chosen.lr, "alpha": chosen.alpha, "eps": chosen.eps}
    return [
        Trial(problem.name, problem.fingerprint, "rmsprop", own, seed, problem.batch_size,
              task.epochs, chosen.precision)
        for seed in range(chosen.seeds)
    ]  # fmt: skip


def draw(chosen: Settings, records: Records) -> "Picture":
    """Draw the distances along training and against the number of probes."""
    return figure4_drawing.draw(chosen.probes, records)


def describe(chosen: Settings, records: Records) -> Description:
    """Return the caption, how it was measured, and the numbers."""
    return figure4_text.describe(chosen.probes, records)


def claims(chosen: Settings, records: Records) -> list[Judgement]:
    """Judge S5, S18, S19, S20, S22, S23 and S26; S12 and S21 need Figure 3 too."""
    return figure4_claims.claims(chosen.probes, records)


def joint(chosen: Settings, records: Records, others: Mapping[str, Records]) -> list[Judgement]:
    """Judge what needs Figure 3 as well: S12, S21, and S26 once more."""
    return figure4_joint.joint_claims(chosen.probes, records, others.get("figure3"))


FIGURE = Figure(
    name="figure4",
    title="Figure 4: distances between the diagonals along training",
    settings=settings,
    units=units,
    compute=compute,
    draw=draw,
    describe=describe,
    claims=claims,
    needs_gpu=True,
    joint=joint,
)
