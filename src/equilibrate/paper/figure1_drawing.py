"""Figure 1 as a picture: contours of the saddle and the paths on it, from the record alone."""

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from equilibrate.paper import saddle
from equilibrate.paper.drawing import BLACK, BLUE, GREY, SKY, VERMILION, axes
from equilibrate.paper.records import Data

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

_LEVELS = (-8.0, -4.0, -2.0, -1.0, -0.3, 0.0, 0.3, 1.0, 2.0, 4.0, 8.0)


def draw(level: float, data: Data) -> "Picture":
    """Draw (a) the original and (b) the transformed function side by side."""
    picture, (left, right) = axes(1, 2, (9.5, 4.6))
    scale = torch.tensor(data["scale"], dtype=torch.float64)
    newton = torch.tensor(data["newton"]["path"], dtype=torch.float64)
    _panel(left, data["original"], newton, level)
    _panel(right, data["transformed"], newton * scale, level)
    for axis, letter, name in ((left, "a", "original"), (right, "b", "equilibrated")):
        kind = data["original" if letter == "a" else "transformed"]
        kappa, steps = kind["condition_number"], kind["escape"]
        axis.set_title(f"({letter}) {name}\ncondition number {kappa:.1f}, escape in {steps} steps")
    left.set(xlabel=r"$\theta_1$", ylabel=r"$\theta_2$")
    right.set(xlabel=r"$\hat\theta_1$", ylabel=r"$\hat\theta_2$")
    handles, labels = left.get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside lower center", ncols=4)
    return picture  # type: ignore[no-any-return]


def _panel(axis: Any, data: Data, newton: Tensor, level: float) -> None:
    """Draw contours, the path of descent and Newton's path on one function."""
    matrix = torch.tensor(data["hessian"], dtype=torch.float64)
    path = torch.tensor(data["path"], dtype=torch.float64)
    _contours(axis, matrix, *_window(torch.cat([path, newton])), level)
    axis.plot(*path.T.tolist(), "-o", color=VERMILION, lw=1.4, ms=3.2,
              label="gradient descent")  # fmt: skip
    axis.plot(*newton.T.tolist(), "--s", color=BLUE, lw=1.4, ms=3.2,
              label="Newton, half steps")  # fmt: skip
    axis.plot(
        *path[0].tolist(), "D", color=BLACK, mfc="white", ms=7, label="start", ls="none", zorder=5
    )
    axis.plot(0, 0, "o", color=BLACK, ms=7, label="saddle", zorder=6, ls="none")


def _window(points: Tensor) -> tuple[Tensor, Tensor]:
    """Return a square window around all points, with a margin."""
    low, high = points.min(0).values, points.max(0).values
    half = (high - low).max() * 0.56
    middle = (low + high) / 2
    return middle - half, middle + half


def _contours(axis: Any, matrix: Tensor, low: Tensor, high: Tensor, level: float) -> None:
    across = torch.linspace(0, 1, 241, dtype=torch.float64)
    first, second = (low[i] + across * (high[i] - low[i]) for i in range(2))
    grid = torch.stack(torch.meshgrid(first, second, indexing="xy"), -1)
    drawn = (first.tolist(), second.tolist(), saddle.value(matrix, grid).tolist())
    axis.contour(*drawn, _LEVELS, colors=GREY, linewidths=0.7, negative_linestyles="solid")
    axis.contourf(*drawn, [-1e9, level], colors=[SKY], alpha=0.22)
    (left, bottom), (right, top) = low.tolist(), high.tolist()
    axis.set(xlim=(left, right), ylim=(bottom, top), aspect="equal")
