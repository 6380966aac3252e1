"""What the optimizer remembers of a parameter, and how a probe is folded into it.

One tensor of the parameter's size, the diagonal, in float32 at least; the rest are plain numbers:

| key | meaning |
| --- | --- |
| step | updates made to this parameter (a tensor, as torch's optimizers keep it) |
| diagonal | sqrt of the mean square (equilibration), or the signed mean (Jacobi) |
| probes | vectors folded so far: the k of Algorithm 1 |
| weight | their total weight after forgetting (`diagonals.averaging`) |
| probed_at | the value of `step` at the last fold |
| scale | mean of the diagonal over the elements whose curvature was ever seen non-zero |
| unseen | number of elements whose curvature was never seen non-zero |
| absent | probed, but the loss did not depend on this parameter |
| momentum_buffer | only with momentum |
"""

import math
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from equilibrate.diagonals.averaging import next_weight
from equilibrate.distributed import cut_like, is_sharded, local, over_shards

State = dict[str, Any]

# Read and written in the precision they were saved in, whatever the parameter's own (`restore`).
_KEPT_PRECISION = (
    "diagonal", "momentum_buffer", "probes", "weight", "probed_at", "scale", "unseen"
)  # fmt: skip


@cache
def wide(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype curvature is kept in: float32 for the half types, else the parameter's."""
    return torch.promote_types(dtype, torch.float32)


def widened(tensor: Tensor, like: torch.dtype) -> Tensor:
    """Return a tensor in the dtype that curvature of a parameter like this is kept in.

    Example:
        >>> widened(torch.ones(1), torch.bfloat16).dtype
        torch.float32
    """
    # Asked here, for each tensor of a probe: `to` takes the host longer.
    return tensor if tensor.dtype == wide(like) else tensor.to(wide(like))


def allocate(parameter: Tensor, momentum: float) -> State:
    """Return the state of a parameter that was never probed."""
    state: State = {
        "step": torch.tensor(0.0, dtype=torch.float32),
        "diagonal": zeros_like(parameter),
        "probes": 0,
        "weight": 0.0,
        "probed_at": 0,
        "scale": 0.0,
        "unseen": parameter.numel(),
        "absent": False,
    }
    if momentum:
        state["momentum_buffer"] = zeros_like(parameter)
    return state


def measured(state: Mapping[str, Any]) -> bool:
    """Tell whether a parameter was ever measured; asked in every step, so without waiting."""
    probes = state.get("probes", 0)
    return isinstance(probes, Tensor) or probes > 0


def all_measured(states: Collection[Mapping[str, Any]]) -> bool:
    """Tell whether all were; at once where the numbers are on the device, which says so.

    Example:
        >>> all_measured([{"probes": 2}, {"probes": torch.tensor(1)}]), all_measured([{}])
        (True, False)
    """
    kinds = {type(state.get("probes")) for state in states}
    return kinds <= {Tensor} or all(map(measured, states))


def zeros_like(parameter: Tensor) -> Tensor:
    """Return zeros of the parameter's shape and layout in the dtype curvature is kept in."""
    return torch.zeros_like(
        parameter, dtype=wide(parameter.dtype), memory_format=torch.preserve_format
    )


def fold(
    kind: ModuleType,
    contributions: Mapping[Tensor, Tensor],
    states: Mapping[Tensor, State],
    decays: Mapping[Tensor, float | None],
) -> None:
    """Average one product into the diagonals, then renew what is summed up from them."""
    for parameter, contribution in contributions.items():
        state = states[parameter]
        step = int(state["step"])
        state["weight"] = next_weight(state["weight"], step - state["probed_at"], decays[parameter])
        diagonal = state["diagonal"]
        kind.fold_(local(diagonal), local(cut_like(contribution, diagonal)), state["weight"])
        state.update(probes=state["probes"] + 1, probed_at=step, absent=False)
    summarise(kind, [states[p] for p in contributions])


def summarise(kind: ModuleType, states: list[State]) -> None:
    """Renew `scale` and `unseen`; the elements are counted only where one is zero."""
    diagonals = [state["diagonal"] for state in states]
    parts = [kind.magnitude(local(diagonal)) for diagonal in diagonals]
    totals, counts = over_shards(diagonals, [float(p.sum()) for p in parts], _seen(parts))
    for state, diagonal, total, seen in zip(states, diagonals, totals, counts, strict=True):
        state["scale"] = total / seen if seen else 0.0
        state["unseen"] = diagonal.numel() - int(seen)


def _seen(magnitudes: list[Tensor]) -> list[float]:
    """Count the elements that are not zero, one by one only where there is a zero."""
    full = [m.numel() == 0 or float(m.amin()) > 0 for m in magnitudes]
    return [
        m.numel() if whole else int(m.count_nonzero())
        for m, whole in zip(magnitudes, full, strict=True)
    ]


def all_finite(tensors: Sequence[Tensor]) -> bool:
    """Tell whether every element is finite: a sum shows it at once, unless it overflows itself."""
    parts = [local(t) for t in tensors]
    fine = [math.isfinite(t.sum()) or bool(t.isfinite().all()) for t in parts]
    return not any(over_shards(tensors, [not each for each in fine])[0])


def any_gradient(parameter: Tensor) -> bool:
    """Tell whether a parameter has a gradient that is not zero, in any of its shards."""
    if parameter.grad is None:
        return False
    gradient = cut_like(parameter.grad, parameter)
    return bool(over_shards([gradient], [float(local(gradient).any())])[0][0])


def check_shapes(saved: Mapping[str, Any], parameters: Sequence[Tensor]) -> None:
    """Raise where a state was saved for a parameter of another shape, before anything is loaded."""
    ids = [i for group in saved["param_groups"] for i in group["params"]]
    for place, (index, parameter) in enumerate(zip(ids, parameters, strict=False)):
        for key in ("diagonal", "momentum_buffer"):
            kept = saved["state"].get(index, {}).get(key)
            plain = isinstance(kept, Tensor) and not (is_sharded(kept) or is_sharded(parameter))
            if plain and kept.shape != parameter.shape:
                raise ValueError(
                    f"The {key} of parameter {place} was saved for shape {tuple(kept.shape)}, and "
                    f"the parameter has {tuple(parameter.shape)}: this state is of another model, "
                    "or its parameters came in another order. Nothing was loaded."
                )


def restore(
    saved: Mapping[str, Any], parameters: list[Tensor], states: Mapping[Tensor, State]
) -> None:
    """Undo the cast of `Optimizer.load_state_dict`: it ruins the diagonal of bf16 parameters.

    torch casts every tensor but 'step' to its parameter's dtype; this copies them again from
    `saved`.
    """
    ids = [i for group in saved["param_groups"] for i in group["params"]]
    for index, parameter in zip(ids, parameters, strict=True):
        for key in _KEPT_PRECISION:
            original = saved["state"].get(index, {}).get(key)
            if isinstance(original, Tensor):
                states[parameter][key] = original.detach().to(parameter.device, copy=True)
