"""Compiling what a stack computes on a GPU, so that it is few passes over memory."""

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

# A study meets many shapes and numbers of trials; past the limit torch would stop compiling.
_RECOMPILE_LIMIT = 256

# Kernels that do not need each other, as those of one update over many tensors, as few launches;
# `benchmarks.mixed_speed` measures what that gains.
JOINED = True


@lru_cache(maxsize=64)  # the same code for every stack: compiled once for each number of trials
def fused(function: Callable[..., Any], device: torch.device) -> Callable[..., Any]:
    """Return a function of tensors (trials, ...) compiled for a GPU.

    For every number of trials anew, of which a study has few: code for any number takes longer to
    compile and knows less about where rows begin. On a CPU the function stays as it is: compiling
    there takes longer than it saves in a study.

    Args:
        function: of tensors, lists and dictionaries of them, by position.
        device: of the tensors.
    """
    if device.type != "cuda":
        return function
    from torch._inductor import config as inductor  # heavy, and of no use on a CPU

    compiled = torch.compile(function, dynamic=False)

    def run(*arguments: Any) -> Any:
        with (
            torch._dynamo.config.patch(recompile_limit=_RECOMPILE_LIMIT),
            inductor.patch(combo_kernels=JOINED),
        ):
            return compiled(*arguments)

    return run
