"""The update in one pass over memory: a Triton kernel on a GPU, compiled C++ on a CPU.

One launch or call moves all tensors of a kind, `kernels.update` or `kernels.cpp`. It walks through
memory, so it takes tensors that are dense and whose gradient and state lie in the same order
(channels-last as well as contiguous), on a CPU of one dtype. Any other tensor takes the way of
`on_device`, on a CPU compiled by torch.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from equilibrate.kernels import capture, cpp, lists
from equilibrate.kernels.lists import Places, written_out
from equilibrate.rules import on_device

_NO_TRITON = (
    "fused=True on a GPU needs the package triton, which comes with torch's CUDA builds. Install "
    "it (pip install triton), or leave fused out."
)

Rule = Callable[..., Any]


def step(
    parameters: Sequence[Tensor],
    gradients: Sequence[Tensor],
    diagonals: Sequence[Tensor],
    buffers: Sequence[Tensor] | None,
    *,
    damping: Tensor,
    fill: Tensor,
    steps: Tensor | None = None,
    places: Places | Literal[False] | None = None,
    **settings: Any,
) -> None:
    """Move every parameter in place, as `on_device.step` does; all on one device.

    `steps`, where they are given, count one more for each parameter: in the same launch, if it is
    one. `places` are those of `places_at_once`, where they are known; False: there are none.
    """
    # Kernels write where autograd does not look: a later backward that needs the old values must
    # raise, as after any change in place.
    increment_version(parameters)
    gradients = gradients if places else written_out(gradients)
    columns = parameters, gradients, diagonals, buffers
    if places is None:
        places = places_at_once(gradients, diagonals, parameters, buffers)
    if places:
        numbers = {"damping": damping, "fill": fill, "steps": steps}
        triton_kernels().step(*columns, **numbers, **settings, places=places)
        return
    if steps is not None:
        steps.add_(1)
    if cpp.takes(*columns):
        cpp.step(*columns, damping=damping, fill=fill, **settings)
        return
    for way, rows in _sorted(parameters, gradients, diagonals, buffers):
        taken = [_take(column, rows) for column in (parameters, gradients, diagonals)]
        _rule(way, "step")(
            *taken,
            None if buffers is None else _take(buffers, rows),
            damping=_numbers(damping, rows),
            fill=_numbers(fill, rows),
            **settings,
        )


def squares(
    gradients: Sequence[Tensor],
    diagonals: Sequence[Tensor],
    *,
    damping: Tensor,
    fill: Tensor,
    update_limit: float | None = None,
    places: Places | Literal[False] | None = None,
) -> Tensor:
    """Return the sum of u^2 over every tensor, as `on_device.squares` does, in one pass."""
    gradients = gradients if places else written_out(gradients)
    numbers: dict[str, Any] = {"damping": damping, "fill": fill, "update_limit": update_limit}
    if places is None:
        places = places_at_once(gradients, diagonals)
    if places:
        at_once: Tensor = triton_kernels().squares(gradients, diagonals, **numbers, places=places)
        return at_once
    if cpp.takes(gradients, diagonals):
        return cpp.squares(gradients, diagonals, **numbers)
    found = list(torch.zeros_like(damping).unbind())
    for way, rows in _sorted(gradients, diagonals):
        sums: Tensor = _rule(way, "squares")(
            _take(gradients, rows),
            _take(diagonals, rows),
            damping=_numbers(damping, rows),
            fill=_numbers(fill, rows),
            update_limit=update_limit,
        )
        if len(rows) == len(found):
            return sums
        for i, each in zip(rows, sums.unbind(), strict=True):
            found[i] = each
    return torch.stack(found)


def limit_(squares: Tensor, elements: int, mean: Tensor, count: Tensor, **numbers: Any) -> Tensor:
    """Return what multiplies the update, as `optim.growth.limit_`, in one launch."""
    factor: Tensor = triton_kernels().limit_(squares, elements, mean, count, **numbers)
    return factor


def places_at_once(
    gradients: Sequence[Tensor], diagonals: Sequence[Tensor], *moved: Sequence[Tensor] | None
) -> Places | None:
    """Return where all tensors lie, if one launch of a kernel takes them: the usual case.

    `moved` are parameters and buffers. A step that measures its update asks once for both.
    """
    if not gradients or not capture.runs_kernels(gradients[0].device):
        return None
    return lists.places_at_once(gradients, diagonals, *filter(None, moved))


def _take(column: Sequence[Tensor], places: Sequence[int]) -> list[Tensor]:
    return [column[i] for i in places]


def _numbers(column: Tensor, places: Sequence[int]) -> Tensor:
    """Return the numbers of some tensors, nothing done where they are all."""
    if len(places) == len(column):
        return column
    return torch.stack([column[i] for i in places])


def _rule(way: str, name: str) -> Rule:
    """Return one way of computing a step, or the squares."""
    if way == "compiled":
        return partial(_run_compiled, name)
    module: Any = {"cpp": cpp, "plain": on_device}.get(way) or triton_kernels()
    rule: Rule = getattr(module, name)
    return rule


def _sorted(*columns: Sequence[Tensor] | None) -> list[tuple[str, list[int]]]:
    """Return which way takes which tensors; those of an empty shape need none."""
    rows = zip(*(column for column in columns if column is not None), strict=True)
    held = [(i, row) for i, row in enumerate(rows) if row[0].numel()]
    chosen: dict[Any, list[int]] = defaultdict(list)
    kernels = held and capture.runs_kernels(held[0][1][0].device)
    choose = _on_gpu if kernels else _on_cpu
    for i, row in held:
        chosen[choose(row)].append(i)
    return [(key[0], places) for key, places in chosen.items()]


def _on_gpu(row: Sequence[Tensor]) -> tuple[Any, ...]:
    """The kernel takes tensors of one set of dtypes at once, where they lie in one order."""
    if in_one_order(row):
        return ("kernel", *(t.dtype for t in row))
    return ("plain",)


def _on_cpu(row: Sequence[Tensor]) -> tuple[Any, ...]:
    """C++ takes tensors of one dtype at once, where they lie in one order.

    A function compiled by torch loses what it writes into a double without dimensions (2.13).
    """
    if cpp.knows(row) and in_one_order(row):
        return ("cpp", row[0].dtype)
    return ("compiled" if row[0].dim() else "plain",)


def in_one_order(tensors: Sequence[Tensor]) -> bool:
    """Tell whether tensors have one shape and fill their memory without gaps, in the same order.

    Example:
        >>> image = torch.zeros(2, 3, 4, 4)
        >>> in_one_order([image, image.contiguous(memory_format=torch.channels_last)])
        False
        >>> in_one_order([image, torch.ones_like(image)])
        True
    """
    first = tensors[0]
    if any(t.shape != first.shape for t in tensors):
        return False
    if all(t.is_contiguous() for t in tensors):
        return True
    return _dense(first) and all(t.stride() == first.stride() for t in tensors)


def _dense(tensor: Tensor) -> bool:
    """Tell whether the elements lie side by side, in whatever order."""
    filled = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride != filled:
            return False
        filled *= size
    return True


@cache
def triton_kernels() -> Any:
    """Return the kernels, or say what is missing."""
    try:
        from equilibrate.kernels import update
    except ImportError as error:
        raise RuntimeError(_NO_TRITON) from error
    return update


@lru_cache(maxsize=4)
def compiled(backend: str = "inductor", name: str = "step") -> Rule:
    """Return a rule of `on_device` compiled: one pass for each tensor, whatever its layout."""
    rule = getattr(on_device, name)
    made: Rule = torch.compile(rule, backend=backend, dynamic=False, fullgraph=True)
    return made


def _run_compiled(name: str, moved: Sequence[Tensor], *tensors: Any, **settings: Any) -> Any:
    # Detached: torch's compiler looks at the gradient of a parameter, and takes none whose dtype is
    # not the parameter's (`grad_dtype`). The rule is given the gradient anyway.
    moved = [tensor.detach() for tensor in moved]
    with torch._dynamo.config.patch(recompile_limit=64):  # another list is another graph
        try:
            return compiled(name=name)(moved, *tensors, **settings)
        except torch._dynamo.exc.BackendCompilerFailed as error:
            raise RuntimeError(cpp.NO_COMPILER) from error
