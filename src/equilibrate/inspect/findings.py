"""What an inspection finds, as plain data: the report is drawn from this alone."""

import math
from dataclasses import dataclass, field, replace

from equilibrate.monitor.interval import Interval
from equilibrate.monitor.spectrum import Spectrum

DAMPING = 1e-2
"""The share of the mean diagonal that is added to it before dividing, ESGD's default."""

PRECONDITIONERS = {
    "none": "no preconditioner",
    "equilibration": "equilibration (ESGD)",
    "jacobi": "Jacobi",
    "gradient": "squared gradient (RMSProp, Adam)",
}

PARTS = 4
"""Into so many each batch's probes are split, to see what chance in them does to a spectrum."""

PAIRS = {
    "equilibration_jacobi": "equilibration and Jacobi",
    "equilibration_gradient": "equilibration and squared gradient",
    "jacobi_gradient": "Jacobi and squared gradient",
}


@dataclass(frozen=True)
class Budget:
    """How much is measured; every entry counts products with the Hessian, or gradients."""

    batches: int = 8
    probes: int = 8  # of each batch
    steps: int = 64  # of Lanczos, for each start vector and each of four spectra
    starts: int = 2
    layers: int = 16  # with spectra of their own, those with most of the Hessian in them
    layer_steps: int = 16  # of Lanczos, for each of a layer's two spectra
    part_steps: int = 24  # of Lanczos, for all probes and for each part of them

    @property
    def products(self) -> int:
        """Products with the Hessian in all, at most."""
        # Probed three times: for the most, for Jacobi's spectrum, and part by part (measure.py).
        whole = 3 * self.batches * self.probes + len(PRECONDITIONERS) * self.steps * self.starts
        return whole + (1 + PARTS) * self.part_steps + 2 * self.layers * self.layer_steps

    def over(self, batches: int) -> "Budget":
        """Return as many probes in all, over the batches that there are."""
        return replace(self, batches=batches, probes=self.batches * self.probes // batches)


FULL = Budget()
QUICK = Budget(batches=4, probes=4, steps=24, starts=1, layers=4, part_steps=12)


@dataclass(frozen=True)
class Block:
    """A layer's own block of the Hessian: what `Spectrum` says of it."""

    largest: Interval
    over_median: Interval  # the largest |eigenvalue|, over the median of all
    over_top_tenth: Interval  # and over their 90% quantile


@dataclass(frozen=True)
class Layer:
    """One parameter tensor: quantiles of its diagonals, and how well they are known."""

    name: str
    shape: tuple[int, ...]
    quantiles: dict[str, dict[str, float]]  # by diagonal
    relative_error: float  # of the equilibration diagonal, with all probes
    one_probe_error: float
    batch_error: float  # between batches, the probes' own taken out
    jacobi_noise: float  # share of the norm of |mean of v * Hv| that is noise
    unseen: float  # share of elements without any curvature
    blocks: dict[str, Block] = field(default_factory=dict)  # by preconditioner; empty if not taken


@dataclass(frozen=True)
class Findings:
    """Everything the report shows."""

    name: str
    size: int
    batch_size: int
    seed: int
    device: str
    quick: bool
    budget: Budget
    losses: list[float]
    spectra: dict[str, Spectrum]
    layers: list[Layer]
    distances: dict[str, Interval]
    error_by_probes: list[tuple[int, float]]  # within a batch
    probe_error: float  # of one batch's diagonal, by its probes
    batch_error: float  # and by the choice of the batch
    small_share: float  # 5% quantile of the diagonal over its layer's mean
    seconds: float
    full: str = "without --quick"  # how the user asks for more products
    parts: tuple[Spectrum, ...] = ()  # after equilibration by all probes, and by each part of them

    @property
    def one_probe_error(self) -> float:
        """The c of the law c / sqrt(probes), which the last, largest number of probes follows."""
        count, error = self.error_by_probes[-1]
        return error * math.sqrt(count)

    def is_measured(self, count: int) -> bool:
        """Tell whether the error of so many probes is measured: two such groups in each batch."""
        return 2 * count <= self.budget.probes
