"""Figure 2: how far each preconditioner lowers the condition number of random Hessians.

100 random logistic regressions (convex) and 100 random networks (non-convex). The paper gives one
hidden layer of 100 sigmoid units, a softmax, normal inputs, weights and biases, random targets; it
leaves open how many inputs, classes and samples. Ours are in `SIZES`; the conclusions are judged at
the main size and shown at all of them. A chunk of problems is a record: a kill loses a chunk.
"""

from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from equilibrate.exact import absolute, equilibration, jacobi, row_column, transformed
from equilibrate.paper import figure2_claims, figure2_drawing
from equilibrate.paper.figure import Figure, Judgement, Records
from equilibrate.paper.random_problems import Size, hessians, random_problem
from equilibrate.paper.records import Data, Store
from equilibrate.study.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

# Pairs of a convex and a non-convex size that are shown together.
SIZES: dict[str, tuple[Size, Size]] = {
    "main": (Size(0, 100, 3, 1000), Size(100, 8, 3, 1000)),
    "small": (Size(0, 20, 2, 1000), Size(100, 2, 2, 1000)),
    "few samples": (Size(0, 100, 3, 300), Size(100, 8, 3, 300)),
    "every class": (Size(0, 100, 3, 1000, True), Size(100, 8, 3, 1000, True)),
    "large": (Size(0, 100, 10, 2000), Size(100, 8, 10, 2000)),
}


@dataclass(frozen=True)
class Settings:
    """Which sizes, how many problems of each, from which seed on."""

    sizes: tuple[str, ...] = tuple(SIZES)
    problems: int = 100
    other_problems: int = 30  # of each size that is not the main one
    chunk: int = 4  # problems in one record
    hidden: int | None = None  # another number of hidden units, for tests
    seed: int = 0
    version: int = 1


@dataclass(frozen=True)
class Chunk:
    """The settings of one record: some problems of one size."""

    size: Size
    seed: int  # of the first problem; the others follow
    problems: int
    version: int


def chunks(settings: Settings) -> list[tuple[str, str, Chunk]]:
    """Return every (size, case, chunk) in the order of computing."""
    found = []
    for name in settings.sizes:
        count = settings.problems if name == "main" else settings.other_problems
        for case, size in zip(("convex", "non-convex"), SIZES[name], strict=True):
            if settings.hidden and size.hidden:
                size = replace(size, hidden=settings.hidden)
            for first in range(0, count, settings.chunk):
                many = min(settings.chunk, count - first)
                chunk = Chunk(size, settings.seed + first, many, settings.version)
                found.append((name, case, chunk))
    return found


def work(chunk: Chunk) -> float:
    """Return the work of a chunk: eigenvalues cost the cube of the size."""
    return chunk.problems * float(chunk.size.parameters + 100) ** 3


def without_null(values: Tensor, null_directions: int) -> Tensor:
    """Return eigenvalues by size, an exact null space of known dimension left out.

    D^-1/2 H D^-1/2 has a null space of the same dimension as H, so as many are left out after
    preconditioning as before.
    """
    return values[values.abs().argsort()][null_directions:]


def extreme_ratio(values: Tensor, null_directions: int = 0) -> float:
    """Return largest over smallest |eigenvalue|, those of the null space left out."""
    sizes = without_null(values, null_directions).abs()
    return float(sizes[-1] / sizes[0])


def _row_column(matrix: Tensor) -> Tensor:
    """Return the row-column diagonal, to the best tolerance that a thousand rounds reach.

    With two inputs some hidden units are nearly the same function, and the iteration is slow.
    """
    for tolerance in (1e-6, 1e-3):
        try:
            return row_column(matrix, tolerance=tolerance)
        except RuntimeError:
            continue
    return row_column(matrix, tolerance=1e-2)


def measure(size: Size, seed: int) -> Data:
    """Return the condition numbers of one problem, before and after every preconditioner."""
    matrix, gauss_newton = hessians(random_problem(size, seed), size.classes)
    values = torch.linalg.eigvalsh(matrix)
    preconditioners = {
        "jacobi": jacobi(matrix),
        "equilibration": equilibration(matrix),
        "gauss_newton": jacobi(gauss_newton),
        "row_column": _row_column(matrix),
    }
    after = {name: transformed(matrix, d) for name, d in preconditioners.items()}
    if not size.null_directions:  # |H| has no inverse where H has none
        after["absolute"] = transformed(matrix, absolute(matrix))
    drop = size.null_directions
    found = {n: extreme_ratio(torch.linalg.eigvalsh((m + m.T) / 2), drop) for n, m in after.items()}
    before = extreme_ratio(values, drop)
    return {
        "seed": seed,
        "before": before,
        "after": {"absolute": 1.0, **found},
        "negative": float((without_null(values, drop) < 0).double().mean()),
        # Smaller ones than this are lost in the rounding of the largest.
        "resolved": before * size.parameters * torch.finfo(torch.float64).eps < 1,
    }


def _measure_chunk(chunk: Chunk) -> Data:
    return {"problems": [measure(chunk.size, chunk.seed + i) for i in range(chunk.problems)]}


def compute(settings: Settings, store: Store, progress: Progress) -> Records:
    """Measure every chunk that has no record yet; each record learns its size's name and case."""
    records = []
    for name, case, chunk in chunks(settings):

        def run(chunk: Chunk = chunk) -> Data:
            return _measure_chunk(chunk)

        record, computed = store.get("figure2", asdict(chunk), run)
        records.append({**record, "size": name, "case": case})
        progress.advance(work(chunk), computed=computed)
    return records


def draw(settings: Settings, records: Records) -> "Picture":
    """Draw histograms at the main size and medians at every size."""
    return figure2_drawing.draw(records)


def claims(settings: Settings, records: Records) -> list[Judgement]:
    """Judge S2, S3 and S4."""
    return figure2_claims.claims(records)


def _settings(quick: bool) -> Settings:
    return Settings(problems=10, other_problems=2) if quick else Settings()


FIGURE = Figure(
    name="figure2",
    title="Figure 2: condition numbers of random Hessians, after over before",
    settings=_settings,
    units=lambda settings: sum(work(chunk) for _, _, chunk in chunks(settings)),
    compute=compute,
    draw=draw,
    describe=lambda settings, records: figure2_claims.describe(records),
    claims=claims,
)
