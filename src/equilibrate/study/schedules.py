"""How the learning rate and the momentum change during a run, as functions of the update.

A learning-rate schedule is a text: "constant", "cosine" (to zero over the run), "linear" (to zero),
"ramp:N" (up over the first N updates), "ending" (a tenth at the end), or two of them joined by "+",
such as "ramp:3000+cosine". A momentum schedule is "constant", "ending" or "sutskever". The end are
the last 1,000 updates, or the last eighth of a run of fewer than 8,000.
"""

import math

from equilibrate.optim.rising_momentum import rising_momentum

_LAST, _SHARE = 1000, 8
_LAST_MOMENTUM = 0.9
_LAST_FACTOR = 0.1


def learning_rate_factor(schedule: str, update: int, total: int) -> float:
    """Return the factor on the learning rate at update number `update` (from 0) of `total`.

    Example:
        >>> [learning_rate_factor("ramp:4+linear", update, 8) for update in (0, 3, 4, 8)]
        [0.25, 0.625, 0.5, 0.0]
    """
    return math.prod(_factor(part, update, total) for part in schedule.split("+"))


def _factor(part: str, update: int, total: int) -> float:
    name, _, number = part.partition(":")
    if name == "ramp" and number.isdigit() and int(number) > 0:
        return min(1.0, (update + 1) / int(number))
    if part == "constant":
        return 1.0
    if part == "linear":
        return 1 - update / total
    if part == "cosine":
        return 0.5 * (1 + math.cos(math.pi * update / total))
    if part == "ending":
        return _LAST_FACTOR if update >= start_of_the_end(total) else 1.0
    raise ValueError(
        f'there is no learning-rate schedule {part!r}; there are "constant", "cosine", '
        f'"linear", "ending" and "ramp:N" with a number N of updates, joined by "+"'
    )


def changes_at_every_update(schedule: str) -> bool:
    """Tell whether a learning-rate schedule moves all the time, not at a few updates.

    Example:
        >>> changes_at_every_update("ramp:9+ending"), changes_at_every_update("ending")
        (True, False)
    """
    return not set(schedule.split("+")) <= {"constant", "ending"}


def momentum_at(schedule: str, momentum: float, update: int, total: int) -> float:
    """Return the momentum at an update; `momentum` is the largest it may reach.

    "ending": 0.9 at most at the end. "sutskever": that, and it rises before (`rising_momentum`;
    Sutskever et al. 2013, equation 5 and section 3).

    Example:
        >>> [momentum_at("sutskever", 0.99, t, 10_000) for t in (0, 250, 750, 9_500)]
        [0.5, 0.75, 0.875, 0.9]
        >>> [momentum_at("ending", 0.99, t, 10_000) for t in (0, 8_999, 9_000)]
        [0.99, 0.99, 0.9]
    """
    if schedule == "constant":
        return momentum
    if schedule not in ("ending", "sutskever"):
        raise ValueError(
            f'there is no momentum schedule {schedule!r}; there are "constant", "ending" and '
            f'"sutskever"'
        )
    most = min(momentum, _LAST_MOMENTUM) if update >= start_of_the_end(total) else momentum
    return most if schedule == "ending" else rising_momentum(update, most)


def start_of_the_end(total: int) -> int:
    """Return the first of the last updates, those that an "ending" changes, of `total`.

    Example:
        >>> start_of_the_end(750_000), start_of_the_end(800)
        (749000, 700)
    """
    return total - min(_LAST, total // _SHARE)
