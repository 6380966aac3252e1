"""Figure 1: a saddle before and after equilibration, and the paths of descent on both.

Descent on the transformed function is descent with D^-1 on the original one (equations 1 to 4), so
one start serves both: x in (a) is D^1/2 x in (b). Both descents use the same rule for their
learning rate, a fixed share of the largest one that does not diverge, 2 / (largest curvature).
"""

from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from equilibrate.exact import condition_number, equilibration, transformed
from equilibrate.paper import figure1_drawing, saddle
from equilibrate.paper.figure import Description, Figure, Judgement, Records, Table
from equilibrate.paper.intervals import bootstrap_median
from equilibrate.paper.records import Data, Store
from equilibrate.study.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture


@dataclass(frozen=True)
class Settings:
    """The saddle, the start and the rules of both descents."""

    curvatures: tuple[float, float] = (20.0, -0.8)
    degrees: float = 8.0  # of the axes: H is not diagonal
    start: tuple[float, float] = (1.0, 0.1)  # along the axes of positive and negative curvature
    share: float = 0.92  # of the largest learning rate that does not diverge
    newton_rate: float = 0.5  # below one, so that the path can be seen
    level: float = -1.0  # escaped: the first step with f below it
    steps: int = 400
    starts: int = 400  # random ones, on the circle of the start's length, for the claim
    seed: int = 0
    version: int = 1


def _descents(settings: Settings) -> dict[str, tuple[Tensor, Tensor, float]]:
    """Return for both functions: Hessian, the map from x to its variable, learning rate."""
    hessian = saddle.rotated(settings.curvatures, settings.degrees)
    diagonal = equilibration(hessian)
    after = transformed(hessian, diagonal)
    both = {
        "original": (hessian, torch.ones_like(diagonal)),
        "transformed": (after, diagonal.sqrt()),
    }
    return {
        name: (matrix, scale, settings.share * 2 / float(torch.linalg.eigvalsh(matrix)[-1]))
        for name, (matrix, scale) in both.items()
    }


def _start(settings: Settings) -> Tensor:
    axes = torch.linalg.eigh(saddle.rotated(settings.curvatures, settings.degrees))[1]
    along = torch.tensor(settings.start, dtype=torch.float64)
    start: Tensor = along[0] * axes[:, 1] + along[1] * axes[:, 0] * torch.sign(axes[1, 0])
    return start


def _path(settings: Settings, matrix: Tensor, scale: Tensor, rate: float) -> Data:
    """Descend from the start, then from random starts on the circle of its length."""
    path = saddle.descend(matrix, scale * _start(settings), rate, settings.steps)
    escape = int(saddle.steps_to(saddle.value(matrix, path), settings.level))
    shown = path[: escape + 1]
    generator = torch.Generator().manual_seed(settings.seed)
    angles = torch.rand(settings.starts, generator=generator, dtype=torch.float64) * 2 * torch.pi
    circle = torch.stack([angles.cos(), angles.sin()], -1) * _start(settings).norm()
    many = saddle.descend(matrix, scale * circle, rate, 10 * settings.steps)
    return {
        "hessian": matrix.tolist(),
        "condition_number": float(condition_number(matrix)),
        "rate": rate,
        "path": shown.tolist(),
        "escape": escape,
        "swings": _swings(shown @ torch.linalg.eigh(matrix)[1][:, -1]),
        "escapes": saddle.steps_to(saddle.value(matrix, many), settings.level).tolist(),
    }


def _swings(along: Tensor) -> int:
    """Return how often the position along the largest curvature changes its sign."""
    return int((along[1:] * along[:-1] < 0).sum())


def _everything(settings: Settings) -> Data:
    hessian = saddle.rotated(settings.curvatures, settings.degrees)
    path = saddle.newton(hessian, _start(settings), settings.newton_rate, 12)
    data: Data = {name: _path(settings, *rest) for name, rest in _descents(settings).items()}
    data["scale"] = _descents(settings)["transformed"][1].tolist()
    one = saddle.newton(hessian, _start(settings), 1.0, 1)[-1]
    data["newton"] = {
        "path": path.tolist(),
        "distances": path.norm(dim=-1).tolist(),
        "values": saddle.value(hessian, path).tolist(),
        "one_full_step": float(one.norm() / _start(settings).norm()),
    }
    return data


def compute(settings: Settings, store: Store, progress: Progress) -> Records:
    """Compute all paths: one record."""
    record, computed = store.get("figure1", asdict(settings), lambda: _everything(settings))
    progress.advance(computed=computed)
    return [record]


def draw(settings: Settings, records: Records) -> "Picture":
    """Draw contours and paths from the record."""
    return figure1_drawing.draw(settings.level, records[0]["data"])


def describe(settings: Settings, records: Records) -> Description:
    """Return the caption and the numbers under the figure."""
    data = records[0]["data"]
    rows = [_row(name, data[name]) for name in ("original", "transformed")]
    halves = len(data["newton"]["path"]) - 1
    far = data["newton"]["distances"][-1]
    rows.append(("Newton, half steps", "-", "-", f"never ({halves} steps: {far:.1e} away)", "-"))
    header = ("descent on", "condition number", "learning rate", "steps to escape", "swings")
    caption = (
        "Contour lines of a saddle (black point): (a) the original function, (b) the function "
        "transformed by equilibration, with descent from the same start (mapped). Before, descent "
        "oscillates along the direction of high positive curvature and escapes slowly; after, it "
        "escapes fast. Newton's steps lead into the saddle."
    )
    notes = (
        f"Escaped means f < {settings.level:g}. Both descents use {settings.share:g} of the "
        "largest learning rate that does not diverge. A swing is a change of side along the "
        "direction of largest curvature, counted until the escape.",
    )
    return Description(caption, notes, (Table("Steps to escape", header, tuple(rows)),))


def _row(name: str, data: Data) -> tuple[str, ...]:
    kappa, rate = f"{data['condition_number']:.3g}", f"{data['rate']:.3g}"
    return name, kappa, rate, str(data["escape"]), str(data["swings"])


def claims(settings: Settings, records: Records) -> list[Judgement]:
    """Judge T3 (Newton moves toward the saddle) and S1 (slow before, fast after)."""
    data = records[0]["data"]
    return [_newton_claim(settings, data["newton"]), _escape_claim(settings, data)]


def _newton_claim(settings: Settings, data: dict[str, Any]) -> Judgement:
    distances = data["distances"]
    nearer = all(b < a for a, b in pairwise(distances))
    holds = nearer and data["one_full_step"] < 1e-6 and min(data["values"]) >= settings.level
    return Judgement(
        "T3",
        "holds" if holds else "does not hold",
        f"every half step halves the distance to the saddle ({distances[0]:.2g} to "
        f"{distances[-1]:.1e}); one full step leaves {data['one_full_step']:.0e} of it",
        "record of figure1; test_t03_*",
        {"distances": distances},
    )


def _escape_claim(settings: Settings, data: Data) -> Judgement:
    pairs = zip(data["original"]["escapes"], data["transformed"]["escapes"], strict=True)
    ratios = [slow / fast for slow, fast in pairs if slow > 0 and fast > 0]
    faster = bootstrap_median(ratios, seed=settings.seed)
    slow, fast = data["original"]["escape"], data["transformed"]["escape"]
    return Judgement(
        "S1",
        "holds" if 0 < fast < slow and faster.low > 1 else "does not hold",
        f"{slow} steps before, {fast} after; over {faster.count} random starts {faster} times "
        "fewer steps",
        f"record of figure1, seed {settings.seed}; median, 95% bootstrap interval",
        {"before": slow, "after": fast, "times_fewer": asdict(faster)},
    )


FIGURE = Figure(
    name="figure1",
    title="Figure 1: a saddle before and after equilibration",
    settings=lambda quick: Settings(starts=100) if quick else Settings(),
    units=lambda settings: 1.0,
    compute=compute,
    draw=draw,
    describe=describe,
    claims=claims,
)
