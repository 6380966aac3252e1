"""Checkpoints: the state of training, written whole or not at all, used only where it is sound.

The first line of the file names the format and the SHA-256 of all that follows, which is what
`torch.save` wrote. A file that does not fit its hash is named, put aside and never used.
"""

import hashlib
import io
import pickle
from pathlib import Path
from typing import Any

import torch

from equilibrate.study.files import explained, put_aside, say, write_whole

_FORMAT = b"equilibrate checkpoint 1 "
_HEADER = len(_FORMAT) + 64 + 1  # the hash in hexadecimal digits, and a newline

State = dict[str, Any]


def save(path: Path, state: State) -> None:
    """Replace the checkpoint by this state: tensors and plain values only.

    Raises:
        StudyError: the disk refused; the checkpoint that was there is as it was.
    """
    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = buffer.getbuffer()
    header = _FORMAT + hashlib.sha256(content).hexdigest().encode() + b"\n"
    write_whole(path, header, content)


def load(path: Path) -> State | None:
    """Return the state on the CPU; None where there is none, or none that is sound."""
    with explained(path):
        data = path.read_bytes() if path.exists() else None
    if data is None:
        return None
    header, content = data[:_HEADER], data[_HEADER:]
    if header != _FORMAT + hashlib.sha256(content).hexdigest().encode() + b"\n":
        refuse(path, "it is cut off or was changed")
        return None
    try:
        state: State = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except (RuntimeError, pickle.UnpicklingError, ValueError, KeyError, TypeError) as error:
        refuse(path, f"this version of torch cannot read it ({_first_line(error)})")
        return None
    return state


def refuse(path: Path, reason: str) -> None:
    """Name a checkpoint that cannot be used, and put it aside."""
    aside = put_aside(path)
    say(f"{path}: checkpoint not used: {reason}; kept as {aside.name}, its trials start over")


def discard(path: Path) -> None:
    """Delete a checkpoint that has served, and what a kill may have left of the next one."""
    with explained(path):
        path.unlink(missing_ok=True)
        path.with_name(f"{path.name}.partial").unlink(missing_ok=True)


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
