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
    """Raise a KeyboardInterrupt inside at SIGTERM too; afterwards the signal is what it was.

    What a signal makes others raise in its place (compiled code that was called back, a clean-up
    that finds its work half done) comes out as the KeyboardInterrupt it was.
    """
    earlier = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    except Exception as error:
        stop = _stop_behind(error)
        if stop is None:
            raise
        raise stop from None
    finally:
        signal.signal(signal.SIGTERM, earlier)


def _stop_behind(error: BaseException | None) -> KeyboardInterrupt | None:
    """Return the signal that an error came of, or that it came while unwinding from."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error


def exit_status(stop: KeyboardInterrupt) -> int:
    """Return what a stopped command exits with: 143 after SIGTERM, 130 after Ctrl-C."""
    return 143 if isinstance(stop, _Terminated) else 130
