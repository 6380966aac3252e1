"""Compiling what a stack computes on a GPU, so that it is few passes over memory."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

# A study meets many shapes and numbers of trials; past the limit torch would stop compiling.
_RECOMPILE_LIMIT = 256


def fused(function: Callable[..., Any], device: torch.device) -> Callable[..., Any]:
    """Return a function of tensors (trials, ...) compiled for a GPU, for any number of trials.

    On a CPU it stays as it is: compiling there takes longer than it saves in a study.
    """
    if device.type != "cuda":
        return function
    compiled = torch.compile(function)

    def run(*arguments: Any) -> Any:
        for tensor in _tensors(arguments):
            if tensor.dim():
                torch._dynamo.maybe_mark_dynamic(tensor, 0)
        with torch._dynamo.config.patch(recompile_limit=_RECOMPILE_LIMIT):
            return compiled(*arguments)

    return run


def _tensors(tree: Any) -> Iterator[Tensor]:
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, dict):
        yield from _tensors(list(tree.values()))
    elif isinstance(tree, (list, tuple)):
        for each in tree:
            yield from _tensors(each)
