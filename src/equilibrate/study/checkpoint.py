"""Checkpoints: the state of training, written whole or not at all, used only where it is sound.

The first line of the file names the format and the SHA-256 of all that follows, which is what
`torch.save` wrote. A file that does not fit its hash is named, put aside and never used.
"""

import hashlib
import io
import pickle
from pathlib import Path
from typing import Any, Protocol

import torch

from equilibrate.study.files import explained, put_aside, say, write_whole

_FORMAT = b"equilibrate checkpoint 1 "
_HEADER = len(_FORMAT) + 64 + 1  # the hash in hexadecimal digits, and a newline

State = dict[str, Any]


class Unsound(ValueError):
    """Raised where bytes are not a checkpoint that can be used; the text is the reason."""


class Shelf(Protocol):
    """Where a group keeps its checkpoint: this module, or another process's shelf."""

    def save(self, path: Path, state: State, /) -> None:
        """Replace the checkpoint by this state."""

    def load(self, path: Path, /) -> State | None:
        """Return the state, or None."""

    def refuse(self, path: Path, reason: str, /) -> None:
        """Put a checkpoint aside that cannot be used."""

    def discard(self, path: Path, /) -> None:
        """Delete a checkpoint that has served."""


def save(path: Path, state: State) -> None:
    """Replace the checkpoint by this state: tensors and plain values only.

    Raises:
        StudyError: the disk refused; the checkpoint that was there is as it was.
    """
    write_whole(path, *_parts(state))


def load(path: Path) -> State | None:
    """Return the state on the CPU; None where there is none, or none that is sound."""
    data = read(path)
    if data is None:
        return None
    try:
        return unpacked(data)
    except Unsound as error:
        refuse(path, str(error))
        return None


def packed(state: State) -> bytes:
    """Return the bytes of a checkpoint, to be sent and written elsewhere."""
    return b"".join(_parts(state))


def unpacked(data: bytes) -> State:
    """Return the state in a checkpoint's bytes, on the CPU.

    Raises:
        Unsound: the bytes are not those that were packed, or torch cannot read them.
    """
    header, content = data[:_HEADER], data[_HEADER:]
    if header != _header(content):
        raise Unsound("it is cut off or was changed")
    try:
        state: State = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    except (RuntimeError, pickle.UnpicklingError, ValueError, KeyError, TypeError) as error:
        raise Unsound(f"this version of torch cannot read it ({_first_line(error)})") from error
    return state


def read(path: Path) -> bytes | None:
    """Return the bytes of a checkpoint as they are; None where there is none."""
    with explained(path):
        return path.read_bytes() if path.exists() else None


def refuse(path: Path, reason: str) -> None:
    """Name a checkpoint that cannot be used, and put it aside."""
    aside = put_aside(path)
    say(f"{path}: checkpoint not used: {reason}; kept as {aside.name}, its trials start over")


def discard(path: Path) -> None:
    """Delete a checkpoint that has served, and what a kill may have left of the next one."""
    with explained(path):
        path.unlink(missing_ok=True)
        path.with_name(f"{path.name}.partial").unlink(missing_ok=True)


def _parts(state: State) -> tuple[bytes, memoryview]:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    content = buffer.getbuffer()
    return _header(content), content


def _header(content: bytes | memoryview) -> bytes:
    return _FORMAT + hashlib.sha256(content).hexdigest().encode() + b"\n"


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)
