"""What changes with more than one rank. For now: nothing may go wrong silently.

Averaging over ranks must happen before squaring, with the same v everywhere. Until that is built,
an optimizer refuses to start among several ranks unless it is told that their models are
independent.
"""

from typing import Any

import torch


def only_one_process(process_group: Any) -> Any:
    """Return `process_group` where this process trains alone, else raise.

    False says that the models of the ranks are independent.
    """
    alone = process_group is False or not torch.distributed.is_available()
    if alone or not torch.distributed.is_initialized():
        return process_group
    if torch.distributed.get_world_size() > 1:
        raise NotImplementedError(
            "Curvature is not averaged over ranks yet, and without that the ranks would drift "
            "apart. Train in one process, or pass process_group=False if every rank has a model "
            "of its own."
        )
    return process_group
