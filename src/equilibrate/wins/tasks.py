"""What is fought over: problems whose instances differ, so that finals meet none of the tuning."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from equilibrate.study.characters import characters_problem
from equilibrate.study.decays import decays_problem
from equilibrate.study.fields.networks import NETWORKS
from equilibrate.study.fields.problems import SUBJECTS, field_name, field_problem
from equilibrate.study.problem import Problem
from equilibrate.study.problems import generated_curves, small_curves
from equilibrate.wins.fighters import SHIPPED_GROWTH, USUAL


@dataclass(frozen=True)
class Task:
    """A problem to fight over.

    Args:
        name: on the command line and in the records.
        label: for people.
        problem: of an instance.
        epochs: of a trial.
        updates_per_epoch: written down here, so that redrawing needs no data.
        fighters: who fights, by name.
        decibels: whether errors are shown as PSNR.
        precision: of the trials.
        growth_limit: of ours; None is none.
    """

    name: str
    label: str
    problem: Callable[[int], Problem]
    epochs: int
    updates_per_epoch: int
    fighters: tuple[str, ...] = USUAL
    decibels: bool = False
    precision: str = "float32"
    growth_limit: float | None = SHIPPED_GROWTH

    def shortened(self, epochs: int) -> "Task":
        """Return the same task with fewer epochs."""
        return replace(self, epochs=min(epochs, self.epochs))


_KINDS = {"sine": "sine", "gaussian": "Gaussian", "wavelet": "wavelet", "relu": "ReLU + encoding"}
_EPOCHS = {64: 188, 128: 188, 256: 250}  # of eight updates each


def _field(subject: str, resolution: int, network: str) -> Task:
    label = f"{subject}, {resolution} x {resolution}, {_KINDS[network]} network"
    problem = partial(field_problem, subject, resolution, network)
    epochs = _EPOCHS[resolution]
    return Task(field_name(subject, resolution, network), label, problem, epochs, 8, decibels=True)


def _all() -> list[Task]:
    fields = [_field(s, r, n) for r in _EPOCHS for s in SUBJECTS for n in NETWORKS]
    # Two vectors of parameters and no matrix: Muon has nothing to do there.
    full_batch = ("esgd", "esgd-row-column", "adamw", "nadam", "rmsprop", "soap", "lbfgs")
    decays = Task("decays", "rates from 1e-3 to 1e3", decays_problem, 2000, 1, full_batch)
    decays = replace(decays, precision="float64")
    return [
        *fields,
        decays,
        replace(
            decays,
            name="decays-log",
            label="logarithms of rates from 1e-3 to 1e3",
            problem=partial(decays_problem, logarithms=True),
        ),
        replace(
            decays,
            name="decays-batches",
            label="rates from 1e-3 to 1e3, in batches",
            problem=partial(decays_problem, batch=50),
            epochs=decays.epochs // 4,
            updates_per_epoch=4,
        ),
        Task("curves-like", "auto-encoder, CURVES-like", generated_curves, 20, 100),
        Task("curves-like-14", "small auto-encoder, CURVES-like", small_curves, 20, 100),
        Task("characters", "characters, transformer", characters_problem, 12, 40),
    ]


TASKS: dict[str, Task] = {task.name: task for task in _all()}
"""By name."""
