"""How figures look: Okabe and Ito's colours, few lines; matplotlib is imported here alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from equilibrate.study.looks import STYLE, require_drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

# Okabe & Ito's palette, told apart by every kind of colour vision.
BLACK, GREY = "#000000", "#999999"
ORANGE, SKY, GREEN, YELLOW = "#E69F00", "#56B4E9", "#009E73", "#F0E442"
BLUE, VERMILION, PURPLE = "#0072B2", "#D55E00", "#CC79A7"

_STYLE: Any = {**STYLE, "font.size": 10, "axes.titlesize": 10.5, "pdf.fonttype": 42}


def axes(rows: int, columns: int, size: tuple[float, float], **options: Any) -> tuple[Any, Any]:
    """Return a figure and its axes in our style, without a window or global state."""
    require_drawing()
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    matplotlib.rcParams.update(_STYLE)
    picture = Figure(figsize=size, layout="constrained")
    FigureCanvasAgg(picture)
    return picture, picture.subplots(rows, columns, **options)


def save(
    picture: "Picture", stem: Path, kinds: Sequence[str] = ("svg", "pdf", "png"), dpi: int = 150
) -> dict[str, Path]:
    """Write a figure, as SVG, PDF and PNG where no kinds are named; return the paths by kind."""
    paths = {kind: stem.with_name(f"{stem.name}.{kind}") for kind in kinds}
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
    picture.draw_without_rendering()  # lays out once, for all kinds
    picture.set_layout_engine("none")
    for kind, path in paths.items():
        picture.savefig(path, dpi=dpi, metadata=undated[kind])
    return paths
