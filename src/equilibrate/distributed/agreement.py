"""What the ranks compare before they average: that they do the same, with the same, at one point.

Whatever differs raises on every rank at once, so that none is left waiting for the others.
"""

from dataclasses import astuple, dataclass

from equilibrate.distributed.ranks import Ranks

_PLACES = ("probe", "step", "step(closure)", "calibrate", "the end of calibrate")

_DIFFERENT_PLACES = (
    "The ranks do not run the same loop: {}. Call optimizer.probe(loss) on every rank, for equally "
    "many micro-batches in the step that warms up, and give calibrate equally many losses; or "
    "pass process_group=False if the models of the ranks are independent."
)
_DIFFERENT_SETTINGS = (
    "The ranks' optimizers differ (rank {} from rank 0): in their parameters' shapes, what "
    "requires a gradient, the seed, another hyper-parameter, or the steps made so far. Build them "
    "alike, load the same checkpoint on every rank, or pass process_group=False if their models "
    "are independent. Of the ways to shard, fully_shard and DTensor are supported; "
    "FullyShardedDataParallel and ZeroRedundancyOptimizer are not."
)
_DIFFERENT_PARAMETERS = (
    "The parameters of the ranks differ (rank {} from rank 0), so their curvature cannot be "
    "averaged. Start from the same weights (DistributedDataParallel sends those of rank 0) and "
    "average gradients before every step; or pass process_group=False if the models are "
    "independent. Of the ways to shard, fully_shard and DTensor are supported, "
    "FullyShardedDataParallel is not."
)
_DIFFERENT_GRADIENTS = (
    "The gradients of the ranks differ (rank {} from rank 0), so the ranks would drift apart. "
    "Train the DistributedDataParallel model, not the module inside it, and leave no_sync for the "
    "last micro-batch; or average the gradients yourself before step; or pass process_group=False "
    "if the models are independent."
)
_MISSING_PROBE = (
    "A probe is due, but rank {} measured nothing while rank {} did. Call optimizer.probe(loss) on "
    "every rank in every iteration: it measures only when due."
)


@dataclass(frozen=True)
class Word:
    """What one rank says of itself: where it is, what it trains with, what it has measured."""

    place: str
    settings: int = 0
    parameters: int = 0
    gradients: int = 0
    pending: bool = False
    skipped: bool = False  # GradScaler found an overflow


def agree(ranks: Ranks, mine: Word, *, announced: bool) -> list[Word]:
    """Return what every rank says of itself; raise on all of them where they may not go on.

    With `announced` the ranks first meet in the store: the place for a rank that might not come.
    """
    if announced:
        _require_one_place(ranks.announce(mine.place))
    place, *rest = astuple(mine)
    gathered = ranks.gather([_PLACES.index(place), *map(int, rest)])
    words = [_word(numbers) for numbers in gathered]
    _require_one_place([word.place for word in words])
    for name, message in (
        ("settings", _DIFFERENT_SETTINGS),
        ("parameters", _DIFFERENT_PARAMETERS),
        ("gradients", _DIFFERENT_GRADIENTS),
    ):
        differing = [r for r, w in enumerate(words) if getattr(w, name) != getattr(words[0], name)]
        if differing:
            raise RuntimeError(message.format(differing[0]))
    pending = [word.pending for word in words]
    if any(pending) and not all(pending):
        raise RuntimeError(_MISSING_PROBE.format(pending.index(False), pending.index(True)))
    return words


def _word(numbers: list[int]) -> Word:
    place, settings, parameters, gradients, pending, skipped = numbers
    return Word(_PLACES[place], settings, parameters, gradients, bool(pending), bool(skipped))


def _require_one_place(places: list[str]) -> None:
    if len(set(places)) > 1:
        raise RuntimeError(
            _DIFFERENT_PLACES.format(
                ", ".join(f"rank {r} is in {place}" for r, place in enumerate(places))
            )
        )
