"""Pieces of work that do not need each other: on a GPU each on a stream of its own."""

from collections.abc import Callable, Sequence
from functools import cache

import torch


def at_once(pieces: Sequence[Callable[[], None]], device: torch.device) -> None:
    """Do all pieces; what follows sees them done. On a GPU small launches then run side by side.

    Example:
        >>> done = []
        >>> at_once([lambda: done.append(1), lambda: done.append(2)], torch.device("cpu"))
        >>> done
        [1, 2]
    """
    if device.type != "cuda" or len(pieces) == 1:
        for piece in pieces:
            piece()
        return
    current = torch.cuda.current_stream(device)
    ready = current.record_event()
    streams = _streams(current.device, len(pieces))
    try:
        for piece, stream in zip(pieces, streams, strict=True):
            stream.wait_event(ready)
            with torch.cuda.stream(stream):
                piece()
    finally:
        for stream in streams:
            current.wait_stream(stream)


@cache
def _streams(device: torch.device, number: int) -> list[torch.cuda.Stream]:
    return [torch.cuda.Stream(device) for _ in range(number)]  # type: ignore[no-untyped-call]
