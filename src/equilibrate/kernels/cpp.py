"""The passes over memory on a CPU: C++ that takes whole lists of tensors in one call.

Built for this machine on first use, by the compiler that torch.compile would use, and kept in its
cache. Besides the passes a call costs the addresses of the tensors alone, so networks of many small
tensors gain most. The tensors of a row lie in one order, and all have one dtype, one of `DTYPES`.
"""

import math
from collections.abc import Sequence
from ctypes import CDLL, Array, c_double, c_int, c_int64, c_void_p
from functools import cache

import torch
from torch import Tensor
from torch.nn import Parameter

from equilibrate.kernels import capture
from equilibrate.kernels.cpp_source import source
from equilibrate.kernels.lists import alike

DTYPES = {torch.float32: "float", torch.float64: "double"}
_PLAIN = {Tensor, Parameter}
_FLAGS = ("-ftree-loop-vectorize", "-fno-math-errno")  # a root that sets errno is no vector's

NO_COMPILER = (
    "fused=True compiles the update for this machine, and that failed. On a CPU it needs a C++ "
    "compiler (g++ or clang) on the PATH and a cache it can write (TORCHINDUCTOR_CACHE_DIR). See "
    "to them, or leave fused out."
)


@cache
def library() -> CDLL:
    """Return the functions, built where this machine has not built them before."""
    try:
        from torch._inductor.codecache import CppCodeCache  # a second to import, for this alone

        built: CDLL = CppCodeCache.load(source(list(DTYPES.values())), extra_flags=_FLAGS)
    except Exception as error:  # whatever the compiler says, or a cache that cannot be written
        raise RuntimeError(f"{NO_COMPILER} The reason: {error}") from error
    return built


def knows(tensors: Sequence[Tensor]) -> bool:
    """Tell whether these are plain tensors of one dtype that C++ is built for, on the CPU.

    A tensor of a class of its own may hold nothing at its address.

    Example:
        >>> knows([torch.ones(2), torch.ones(3)]), knows([torch.ones(2), torch.ones(3).double()])
        (True, False)
    """
    first = tensors[0]
    return (
        first.dtype in DTYPES
        and capture.is_host(first.device)
        and {type(tensor) for tensor in tensors} <= _PLAIN
        and len({tensor.dtype for tensor in tensors}) == 1
    )


def takes(*columns: Sequence[Tensor] | None) -> bool:
    """Tell whether one call takes whole lists: plain, contiguous, none empty, of one dtype.

    Example:
        >>> whole, half = [torch.ones(2), torch.ones(3)], [torch.ones(2).half()] * 2
        >>> takes(whole, None), takes(whole, half)
        (True, False)
    """
    given = [column for column in columns if column is not None]
    together = [tensor for column in given for tensor in column]
    return bool(given[0]) and knows(together) and alike(*given)


def step(
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    diagonals: Sequence[Tensor],
    buffers: Sequence[Tensor] | None,
    *,
    lr: Tensor,
    damping: Tensor,
    fill: Tensor,
    momentum: Tensor | None,
    nesterov: bool,
    weight_decay: Tensor | None,
    maximize: bool,
    update_limit: float | None = None,
    scale: Tensor | None = None,
) -> None:
    """Move every parameter in place, as `rules.on_device.step` does, in one pass over memory."""
    rate = float(lr)
    shrink = 1.0 if weight_decay is None else 1 - rate * float(weight_decay)
    numbers = -rate if maximize else rate, 0.0 if momentum is None else float(momentum), shrink
    _call(
        "step",
        parameters,
        *map(_addresses, (parameters, gradients, diagonals)),
        None if buffers is None or momentum is None else _addresses(buffers),
        *_damped(damping, fill),
        *map(c_double, (*numbers, _limit(update_limit), 1.0 if scale is None else float(scale))),
        c_int(nesterov),
    )


def squares(
    gradients: Sequence[Tensor],
    diagonals: Sequence[Tensor],
    *,
    damping: Tensor,
    fill: Tensor,
    update_limit: float | None = None,
) -> Tensor:
    """Return the sum of u^2 over every tensor, as `rules.on_device.squares` does."""
    found = torch.empty(len(gradients), dtype=torch.float64, device="cpu")
    columns = _addresses(gradients), _addresses(diagonals)
    numbers = *_damped(damping, fill), c_double(_limit(update_limit))
    _call("squares", gradients, *columns, *numbers, c_void_p(found.data_ptr()))
    return found


def fold(
    diagonals: Sequence[Tensor],
    products: Sequence[Tensor],
    old: Tensor,
    new: Tensor,
    *,
    roots: bool,
) -> tuple[Tensor, Tensor]:
    """Fold products into diagonals; return sums of |D| and counts of D != 0.

    D <- sqrt((old D)^2 + (new Hv)^2) with `roots`, else D <- old D + new Hv.
    """
    sums = torch.empty(len(diagonals), dtype=torch.float64, device="cpu")
    seen = torch.empty(len(diagonals), dtype=torch.int64, device="cpu")
    columns = _addresses(diagonals), _addresses(products)
    factors = _doubles(old.tolist()), _doubles(new.tolist())
    results = c_void_p(sums.data_ptr()), c_void_p(seen.data_ptr())
    _call("fold", diagonals, *columns, *factors, c_int(roots), *results)
    return sums, seen


def _call(name: str, like: Sequence[Tensor], *arguments: object) -> None:
    """Call one function for tensors of these sizes and of the dtype of the first."""
    function = getattr(library(), f"{name}_{DTYPES[like[0].dtype]}")
    sizes = (c_int64 * len(like))(*map(Tensor.numel, like))
    function(c_int64(len(like)), sizes, *arguments, c_int(torch.get_num_threads()))


def _addresses(tensors: Sequence[Tensor]) -> "Array[c_void_p]":
    return (c_void_p * len(tensors))(*map(Tensor.data_ptr, tensors))


def _doubles(values: Sequence[float]) -> "Array[c_double]":
    return (c_double * len(values))(*values)


def _damped(damping: Tensor, fill: Tensor) -> tuple["Array[c_double]", "Array[c_double]"]:
    """Return the damping, and what stands for a D of zero: infinite where it would divide by 0."""
    extra, gaps = damping.tolist(), fill.tolist()
    unseen = [f if f + d > 0 else math.inf for d, f in zip(extra, gaps, strict=True)]
    return _doubles(extra), _doubles(unseen)


def _limit(update_limit: float | None) -> float:
    return math.inf if update_limit is None else update_limit
