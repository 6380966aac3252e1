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
        self._last = 0
        self._spent = 0.0
        self.calls = 0
        self.waits = False  # whether the last call was due but for the budget

    def due(self) -> bool:
        """Count a call, and tell whether it is to be measured."""
        self.calls += 1
        self.waits = False
        if self._started is None:
            self._started = self._clock()
        elif self.calls - self._last < self._every:
            return False
        elif not self._affordable():
            self.waits = True
            return False
        self._last = self.calls
        return True

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

    def _affordable(self) -> bool:
        assert self._started is not None
        return self._budget is None or self._spent <= self._budget * (self._clock() - self._started)
