"""Commands that a signal stops: SIGTERM unwinds like Ctrl-C, so that records stay whole."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class _Terminated(KeyboardInterrupt):
    """SIGTERM, made to unwind like Ctrl-C."""


def _terminate(number: int, frame: FrameType | None) -> None:
    raise _Terminated


@contextmanager
def stoppable() -> Iterator[None]:
    """Raise a KeyboardInterrupt inside at SIGTERM too; afterwards the signal is what it was."""
    earlier = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, earlier)


def exit_status(stop: KeyboardInterrupt) -> int:
    """Return what a stopped command exits with: 143 after SIGTERM, 130 after Ctrl-C."""
    return 143 if isinstance(stop, _Terminated) else 130
