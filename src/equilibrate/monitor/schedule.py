"""When to measure: not before `every` calls, and not while more than the budget is spent."""

from collections.abc import Callable


class Schedule:
    """Counts calls and seconds; the first call is always due.

    After a measurement the next waits until `spent <= budget * elapsed`. So at any time
    spent <= budget * elapsed + the cost of one measurement.

    Example:
        >>> now = [0.0]
        >>> schedule = Schedule(every=2, budget=0.1, clock=lambda: now[0])
        >>> found = []
        >>> for call in range(8):
        ...     found.append(schedule.due())
        ...     schedule.spend(0.25 if found[-1] else 0.0)
        ...     now[0] += 1.0
        >>> found  # a quarter of a second is a tenth of the first 2.5
        [True, False, False, True, False, True, False, False]
    """

    def __init__(self, every: int, budget: float | None, clock: Callable[[], float]) -> None:
        if every < 1:
            raise ValueError(f"every must be at least 1 call, got {every}")
        if budget is not None and budget <= 0:
            raise ValueError(f"budget must be a share above 0, or None for no limit, got {budget}")
        self._every, self._budget, self._clock = every, budget, clock
        self._started: float | None = None
        self._asked: float | None = None  # when it was asked whether the next call is due
        self._last = 0
        self._spent = 0.0
        self.calls = 0
        self.waits = False  # whether the last call was due but for the budget

    def due(self) -> bool:
        """Count a call, and tell whether it is to be measured."""
        due = self.next_is_due()
        self.waits = self._has_come() and not due
        if self._started is None:
            self._started = self._clock()
        self._asked = None
        self.calls += 1
        if due:
            self._last = self.calls
        return due

    def next_is_due(self) -> bool:
        """Tell whether the next call is to be measured; the answer holds until then.

        Time goes on between question and call, so that a measurement could become affordable in
        between. It then waits for another call: who has asked is ready for what was answered.
        """
        if self._asked is None:
            self._asked = self._clock()
        return self._has_come() and self._affordable(self._asked)

    def told(self) -> str:
        """Say what holds a measurement back, and how to change it."""
        assert self._budget is not None
        return (
            f"Measurements took {self._spent:.2g} s so far, above the monitor's budget of "
            f"{100 * self._budget:.3g}% of the time of the run: the next waits until the run is "
            f"{self._spent / self._budget:.2g} s old. Monitor(..., budget=None) measures every "
            f"{self._every} calls at any price; a larger budget measures more often."
        )

    def spend(self, seconds: float) -> None:
        """Note what a measurement took."""
        self._spent += seconds

    def _has_come(self) -> bool:
        """Tell whether the next call is the first or, but for the budget, would be measured."""
        return self._started is None or self.calls + 1 - self._last >= self._every

    def _affordable(self, now: float) -> bool:
        if self._started is None or self._budget is None:
            return True
        return self._spent <= self._budget * (now - self._started)
