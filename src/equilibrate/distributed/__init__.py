"""What changes with more than one rank: products are averaged, and nothing drifts apart unseen."""

from equilibrate.distributed.agreement import Word, agree
from equilibrate.distributed.checksum import checksum
from equilibrate.distributed.ranks import Ranks, ranks_of

__all__ = ["Ranks", "Word", "agree", "checksum", "ranks_of"]
