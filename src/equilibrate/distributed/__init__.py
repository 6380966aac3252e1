"""What changes with more than one rank: products are averaged, and nothing drifts apart unseen."""

from equilibrate.distributed.agreement import Word, agree
from equilibrate.distributed.checksum import checksum
from equilibrate.distributed.lengths import inner, norm
from equilibrate.distributed.ranks import Ranks, ranks_of
from equilibrate.distributed.shards import (
    all_plain,
    cut_like,
    draw_part,
    is_sharded,
    local,
    over_shards,
)

__all__ = [
    "Ranks",
    "Word",
    "agree",
    "all_plain",
    "checksum",
    "cut_like",
    "draw_part",
    "inner",
    "is_sharded",
    "local",
    "norm",
    "over_shards",
    "ranks_of",
]
