"""What all pictures share: their style, and that they need matplotlib, which an extra brings."""

import importlib.util
from typing import Any

STYLE: Any = {
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "svg.fonttype": "path",  # looks the same whatever fonts its reader has
    "svg.hashsalt": "equilibrate",  # the same records give the same file
}


class MissingExtra(RuntimeError):
    """Raised where drawing is asked for and matplotlib is not installed."""


def require_drawing() -> None:
    """Raise, naming the extra to install, unless matplotlib is there."""
    if importlib.util.find_spec("matplotlib") is None:
        raise MissingExtra("drawing needs matplotlib: pip install 'equilibrate[paper]'")
