"""Compiling what a stack computes on a GPU, so that it is few passes over memory."""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

# A study meets many shapes and numbers of trials; past the limit torch would stop compiling.
_RECOMPILE_LIMIT = 256


@lru_cache(maxsize=64)  # the same code for every stack: compiled once
def fused(
    function: Callable[..., Any], device: torch.device, *, any_number: bool = True
) -> Callable[..., Any]:
    """Return a function of tensors (trials, ...) compiled for a GPU.

    On a CPU it stays as it is: compiling there takes longer than it saves in a study.

    Args:
        function: of tensors, lists and dictionaries of them, by position.
        device: of the tensors.
        any_number: compile once for any number of trials; False compiles anew for each.
    """
    if device.type != "cuda":
        return function
    compiled = torch.compile(function, dynamic=None if any_number else False)

    def run(*arguments: Any) -> Any:
        # Aliases, for marks stay on a tensor and other functions would find them.
        arguments = _aliases(arguments)
        for tensor in _tensors(arguments) if any_number else ():
            if tensor.dim():
                torch._dynamo.maybe_mark_dynamic(tensor, 0)
        with torch._dynamo.config.patch(recompile_limit=_RECOMPILE_LIMIT):
            return compiled(*arguments)

    return run


def _aliases(tree: Any) -> Any:
    if isinstance(tree, Tensor):
        return tree.view_as(tree) if tree.requires_grad else tree.detach()
    if isinstance(tree, dict):
        return {key: _aliases(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(_aliases(each) for each in tree)
    return tree


def _tensors(tree: Any) -> Iterator[Tensor]:
    if isinstance(tree, Tensor):
        yield tree
    elif isinstance(tree, dict):
        yield from _tensors(list(tree.values()))
    elif isinstance(tree, (list, tuple)):
        for each in tree:
            yield from _tensors(each)
