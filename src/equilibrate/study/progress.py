"""Progress on stderr: a bar with the time left on a terminal, a line now and then elsewhere."""

import math
import sys
import time
from dataclasses import dataclass, field
from typing import TextIO

from equilibrate.study.pace import Pace

_WIDTH = 24
_LINE_SECONDS = 10.0  # between two lines where there is no terminal to redraw a bar on


def clock(seconds: float) -> str:
    """Return a span of time in minutes and seconds.

    Example:
        >>> clock(75.4)
        '1:15'
    """
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"


@dataclass
class Progress:
    """How far one figure is. What was found on disk counts as done, not towards the speed."""

    label: str
    total: float
    stream: TextIO | None = field(default_factory=lambda: sys.stderr)  # None: silent
    done: float = 0.0
    worked: float = 0.0
    started: float = field(default_factory=time.perf_counter)
    shown: float = 0.0
    pace: Pace = field(init=False)

    def __post_init__(self) -> None:
        self.pace = Pace(self.started)

    def advance(self, amount: float = 1.0, *, computed: bool = True) -> None:
        """Count work as done; `computed` is False for what a record already held."""
        self.done = min(self.total, self.done + amount)
        self.worked += amount if computed else 0.0
        self.pace.note(self.worked, self.total, time.perf_counter())
        self._show()

    def finish(self) -> None:
        """Count what was not needed as done: a recursion ended early, say."""
        if self.done < self.total:
            self.advance(self.total, computed=False)

    def left(self) -> str:
        """Return the time left at the pace so far; a question mark before any work."""
        if self.done >= self.total:
            return "done"
        left = self.pace.left(self.worked, self.total - self.done, time.perf_counter())
        return "? left" if left is None else f"{clock(math.ceil(left))} left"

    def _show(self) -> None:
        if self.stream is None:
            return
        now, last = time.perf_counter(), self.done >= self.total
        terminal = self.stream.isatty()
        if not terminal and not last and now - self.shown < _LINE_SECONDS:
            return
        self.shown = now
        share = self.done / self.total
        bar = ("#" * int(share * _WIDTH)).ljust(_WIDTH, ".")
        spent = clock(now - self.started)
        text = f"{self.label:22s} [{bar}] {share:4.0%}  {spent} spent, {self.left()}"
        start, end = ("\r", "  " if not last else "  \n") if terminal else ("", "\n")
        print(f"{start}{text}", end=end, file=self.stream, flush=True)
