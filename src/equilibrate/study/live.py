"""Live progress on stderr: on a terminal lines redrawn in place, elsewhere a line now and then."""

import shutil
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TextIO

from equilibrate.study import files
from equilibrate.study.course import Moment
from equilibrate.study.pace import Pace
from equilibrate.study.progress import clock

_BAR = 24
_REDRAW_SECONDS = 0.2
_LINE_SECONDS = 10.0  # between two lines where there is no terminal


@dataclass
class Live:
    """What a study shows while it runs; call it with every moment that the study reports.

    Args:
        phase: a word for what is going on.
        labels: of the methods, by name, in the order in which they are trained.
        epochs: of a whole trial.
        stream: where to show it; None: nowhere.
        now: a clock, in seconds.
    """

    phase: str
    labels: Mapping[str, str]
    epochs: int
    stream: TextIO | None = field(default_factory=lambda: sys.stderr)
    now: Callable[[], float] = time.perf_counter
    started: float = field(init=False)
    pace: Pace = field(init=False)
    shown: float = field(init=False)
    last: Moment | None = None
    states: dict[str, Moment] = field(default_factory=dict)
    best: dict[str, float] = field(default_factory=dict)
    ended: bool = False
    drawn: int = 0  # lines on the terminal, to be drawn over
    heard: int = 0  # of what was said to the user

    def __post_init__(self) -> None:
        self.started, self.heard = self.now(), len(files.SAID)
        self.pace = Pace(self.started)
        self.shown = -_LINE_SECONDS if self._terminal() else self.started

    def __call__(self, moment: Moment) -> None:
        """Take note of a moment; show it where it is time to."""
        self.last = self.states[moment.method] = moment
        self.pace.note(moment.trained, moment.total, self.now())
        if moment.best is not None:
            self.best[moment.method] = min(self.best.get(moment.method, moment.best), moment.best)
        wait = _REDRAW_SECONDS if self._terminal() else _LINE_SECONDS
        if self.now() - self.shown >= wait:
            self._show()

    def finish(self) -> None:
        """Show the end of the phase, and leave it on the screen."""
        self.ended = True
        if self.stream is None:
            return
        if self.last is None or not self.last.trained:
            print(f"{self.phase}: everything is recorded already", file=self.stream, flush=True)
        elif self._terminal():
            self._show()
        else:
            spent = clock(self.now() - self.started)
            print(f"{self.phase}: done, {spent} spent", file=self.stream, flush=True)

    def lines(self) -> list[str]:
        r"""The lines of a terminal: the head, and how far each method is.

        Example:
            >>> names = {"sgd": "SGD", "adam": "Adam"}
            >>> live = Live("search", names, epochs=20, stream=None, now=lambda: 60.0)
            >>> live(Moment("sgd", 8, 10, 3.5, trained=80.0, done=80.0, total=320.0))
            >>> print("\n".join(live.lines()))
            search [######..................]  25%  0:00 spent, ? left
              SGD   epoch 10 of 20  best 3.5      8 training
              Adam  waiting
        """
        width = max(map(len, self.labels.values()))
        rows = [f"  {label:{width}}  {self._state(name)}" for name, label in self.labels.items()]
        return [self._head(), *rows]

    def _head(self) -> str:
        done, total = (self.last.done, self.last.total) if self.last else (0.0, 1.0)
        share = done / total
        bar = ("#" * int(share * _BAR)).ljust(_BAR, ".")
        spent = clock(self.now() - self.started)
        return f"{self.phase} [{bar}] {int(100 * share):3d}%  {spent} spent, {self._left()}"

    def _left(self) -> str:
        """The time left at the pace so far; what was found recorded does not count as work."""
        if self.last is None:
            return "? left"
        rest = self.last.total - self.last.done
        left = self.pace.left(self.last.trained, rest, self.now())
        return "? left" if left is None else f"{clock(left)} left"

    def _state(self, name: str) -> str:
        order, present = list(self.labels), self.last.method if self.last else ""
        if name not in self.states:
            before = present in order and order.index(name) < order.index(present)
            return "recorded already" if before else "waiting"
        state = self.states[name]
        epoch = f"epoch {int(state.epoch)} of {self.epochs}"
        best = f"best {self.best[name]:.4g}" if name in self.best else ""
        diverged = f", {state.diverged} diverged" if state.diverged else ""
        return f"{epoch:14}  {best:12}  {self._activity(state, present)}{diverged}"

    def _activity(self, state: Moment, present: str) -> str:
        passed = state.alone and state.method != present
        if self.ended or passed or not (state.trials or state.waiting):
            return "done"
        return f"{state.trials} training" if state.trials else "waiting"

    def _terminal(self) -> bool:
        return self.stream is not None and self.stream.isatty()

    def _show(self) -> None:
        self.shown = self.now()
        if self.stream is None or self.last is None:
            return
        if self._terminal():
            self._redraw(self.stream)
        else:
            label = self.labels.get(self.last.method, self.last.method)
            state = " ".join(self._state(self.last.method).split())
            print(f"{self._head()}  {label}: {state}", file=self.stream, flush=True)

    def _redraw(self, stream: TextIO) -> None:
        columns, height = shutil.get_terminal_size()
        lines = self.lines()
        if len(lines) >= height:  # more methods than the screen has lines
            place = 1 + list(self.labels).index(self.last.method) if self.last else 1
            lines = [lines[0], lines[place]]
        if len(files.SAID) > self.heard:  # what was said since stands below: begin anew under it
            self.drawn, self.heard = 0, len(files.SAID)
        up = f"\x1b[{self.drawn}A" if self.drawn else ""
        text = "".join(f"\x1b[2K{line[: columns - 1]}\n" for line in lines)
        stream.write(f"{up}{text}")
        stream.flush()
        self.drawn = len(lines)
