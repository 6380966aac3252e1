"""Nested dictionaries and lists of tensors: what a stack keeps, copied, cut and joined."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


def each(tree: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """Apply a function to every tensor.

    Example:
        >>> each({"a": [torch.ones(1)]}, lambda tensor: -tensor)
        {'a': [tensor([-1.])]}
    """
    if isinstance(tree, dict):
        return {key: each(value, change) for key, value in tree.items()}
    if isinstance(tree, list):
        return [each(value, change) for value in tree]
    return change(tree)


def copy(source: Any, target: Any) -> None:
    """Copy nested tensors into others of the same shape, in place."""
    if isinstance(target, dict):
        for key in target:
            copy(source[key], target[key])
    elif isinstance(target, list):
        for one, other in zip(source, target, strict=True):
            copy(one, other)
    else:
        target.copy_(source)


def joined(trees: Sequence[Any]) -> Any:
    """Join trees of one form by the first dimension of their tensors.

    Example:
        >>> joined([{"a": torch.zeros(1)}, {"a": torch.ones(2)}])
        {'a': tensor([0., 1., 1.])}
    """
    first = trees[0]
    if isinstance(first, dict):
        return {key: joined([tree[key] for tree in trees]) for key in first}
    if isinstance(first, list):
        return [joined(parts) for parts in zip(*trees, strict=True)]
    return first if len(trees) == 1 else torch.cat(list(trees))
