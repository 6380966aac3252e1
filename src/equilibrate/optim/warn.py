"""Warnings that point at the user's own line, however deep in this package they arise."""

import sys
import warnings
from pathlib import Path

import torch

_INSIDE = (str(Path(__file__).parents[1]), str(Path(torch.__file__).parent))


def warn_user(text: str) -> None:
    """Warn at the innermost line outside this package and torch."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_INSIDE):
        level, frame = level + 1, frame.f_back
    warnings.warn(text, stacklevel=level)
