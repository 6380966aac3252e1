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

    `code` tells a user's own optimizer from another of the same name; it is empty, and no part of
    the key, for the methods known by name and for torch's classes.

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
    code: str = ""

    @property
    def key(self) -> str:
        """The hash of the trial: the same settings have the same key everywhere."""
        return digest(self._parts())[:16]

    def describe(self) -> dict[str, Any]:
        """Return the trial as plain values, as records hold it."""
        return {"key": self.key, **self._parts()}

    def _parts(self) -> dict[str, Any]:
        # Without the code where there is none: so the published records are named.
        return {name: part for name, part in asdict(self).items() if part or name != "code"}
