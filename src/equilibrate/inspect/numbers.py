"""Numbers as people read them: three digits, an exponent only where there is no other way."""

import math

from equilibrate.monitor.interval import Interval


def short(number: float) -> str:
    """Return a number to three digits.

    Example:
        >>> [short(x) for x in (2003.4, 0.0123456, -57.21, 842340.0, 3.3e7, 1e-6)]
        ['2,000', '0.0123', '-57.2', '842,000', '3.3e+07', '1e-06']
    """
    if not 100 <= abs(number) < 1e6:
        return f"{number:.3g}"
    return f"{round(number, 2 - math.floor(math.log10(abs(number)))):,.0f}"


def in_words(interval: Interval) -> str:
    """Return a number with its interval.

    Example:
        >>> in_words(Interval(2003.4, 1960.0, float("inf")))
        '2,000 [1,960, inf]'
    """
    low, value, high = map(short, (interval.low, interval.value, interval.high))
    return f"{value} [{low}, {high}]"
