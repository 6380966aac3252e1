"""What names one training run, and the key its record is found by."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from equilibrate.study.naming import digest

PRECISIONS = ("float32", "tf32", "bfloat16", "float64")
"""tf32: float32 with NVIDIA's short matrix products; bfloat16: autocast, float32 parameters."""


@dataclass(frozen=True)
class Trial:
    """One training run: everything its numbers depend on, and nothing else.

    Example:
        >>> trial = Trial("line", "0a1b", "sgd", {"lr": 0.1}, seed=0, batch_size=4, epochs=2)
        >>> len(trial.key)
        16
    """

    problem: str
    fingerprint: str
    method: str
    settings: Mapping[str, Any]
    seed: int
    batch_size: int
    epochs: int
    precision: str = "float32"

    @property
    def key(self) -> str:
        """The hash of the trial: the same settings have the same key everywhere."""
        return digest(asdict(self))[:16]

    def describe(self) -> dict[str, Any]:
        """Return the trial as plain values, as records hold it."""
        return {"key": self.key, **asdict(self)}
