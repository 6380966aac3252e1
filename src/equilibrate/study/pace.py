"""The time that is left, at the pace of the work so far."""

from dataclasses import dataclass

_SMALL = 1e-3  # of all the work
_SECONDS = 1.0  # that are too few to tell a pace from


@dataclass
class Pace:
    """How fast work is done that comes in pieces.

    Whether a clock runs from the start or from the first piece depends on that piece. A small one
    says that the time before it went into what is done once, such as compiling; with a large one
    that time was work.
    """

    started: float
    began: float | None = None  # when the clock of the work started
    before: float = 0.0  # work done by then

    def note(self, worked: float, total: float, now: float) -> None:
        """Take note of the work done by now, of `total`."""
        if worked and self.began is None:
            small = worked < _SMALL * total
            self.began, self.before = (now, worked) if small else (self.started, 0.0)

    def left(self, worked: float, rest: float, now: float) -> float | None:
        """Return the seconds that the rest takes; None while nothing tells.

        Example:
            >>> pace = Pace(started=0.0)
            >>> pace.note(1.0, 10_000.0, now=100.0)  # after a minute and more of compiling
            >>> pace.left(1.0, 9_999.0, now=100.0) is None
            True
            >>> round(pace.left(11.0, 9_989.0, now=101.0))
            999
        """
        if not rest:
            return 0.0
        if self.began is None or worked <= self.before or now - self.began < _SECONDS:
            return None
        return (now - self.began) / (worked - self.before) * rest
