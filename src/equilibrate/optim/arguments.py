"""The checks of hyper-parameters and gradients: what is wrong, with its value, and what to do."""

from collections.abc import Callable, Iterable, Sequence
from numbers import Integral, Real
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from equilibrate.curvature import DISTRIBUTIONS
from equilibrate.optim.pending import Pending

DampingKind = Literal["relative", "initial", "absolute"]
DAMPING_KINDS: tuple[str, ...] = get_args(DampingKind)
Scaling = Literal["row", "row-column"]
SCALINGS: tuple[str, ...] = get_args(Scaling)

# In every state that these optimizers have saved, of whatever version, and in no one else's.
_OF_ALL_VERSIONS = {"damping", "probe_every"}

Check = tuple[Callable[[Any], bool], str]


def _number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _count(value: Any) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1


def _choice(value: Any) -> bool:
    return value is None or isinstance(value, bool)


def _learning_rate(value: Any) -> bool:
    if isinstance(value, Tensor) and value.numel() == 1:
        return bool(0 <= value < float("inf"))
    return _non_negative(value)


def _non_negative(value: Any) -> bool:
    return _number(value) and 0 <= value < float("inf")


_CHECKS: dict[str, Check] = {
    "lr": (_learning_rate, "a finite number or one-element tensor >= 0"),
    "damping": (_non_negative, "a finite number >= 0"),
    "damping_kind": (lambda v: v in DAMPING_KINDS, f"one of {DAMPING_KINDS}"),
    "decay": (
        lambda v: v is None or (_number(v) and 0 < v < 1),
        "None (the running mean) or a number in (0, 1), per optimizer step",
    ),
    "probe_every": (_count, "a whole number of steps >= 1"),
    "warmup_probes": (_count, "a whole number >= 1; 1 means no warm-up"),
    "distribution": (lambda v: v in DISTRIBUTIONS, f"one of {DISTRIBUTIONS}"),
    "momentum": (lambda v: _number(v) and 0 <= v < 1, "a number in [0, 1)"),
    "nesterov": (lambda v: isinstance(v, bool), "True or False"),
    "update_limit": (
        lambda v: v is None or (_non_negative(v) and v > 0),
        "None (no limit) or a finite number > 0",
    ),
    "growth_limit": (
        lambda v: v is None or (_non_negative(v) and v > 1),
        "None (no limit) or a finite number > 1",
    ),
    "mean_floor": (lambda v: isinstance(v, bool), "True or False"),
    "weight_decay": (_non_negative, "a finite number >= 0"),
    "maximize": (lambda v: isinstance(v, bool), "True or False"),
    "foreach": (_choice, "None, True or False"),
    "fused": (_choice, "None, True or False"),
    "capturable": (lambda v: isinstance(v, bool), "True or False"),
    "scaling": (lambda v: v in SCALINGS, f"one of {SCALINGS}"),
    "seed": (
        lambda v: isinstance(v, Integral) and abs(int(v)) < 2**63,
        "a whole number below 2^63",
    ),
}


def plain_numbers(values: dict[str, Any]) -> dict[str, Any]:
    """Return hyper-parameters with numbers of other packages as Python's own.

    A NumPy number in a checkpoint is refused by `torch.load(weights_only=True)`.
    """
    return {
        name: (int if isinstance(value, Integral) else float)(value) if _number(value) else value
        for name, value in values.items()
    }


def check_group(group: dict[str, Any]) -> None:
    """Raise ValueError for the first hyper-parameter of a group that is out of range."""
    for name, (holds, wanted) in _CHECKS.items():
        if name in group and not holds(group[name]):
            hint = " Pass its .lr." if hasattr(group[name], "lr") else ""
            raise ValueError(f"Invalid {name}: {group[name]!r}. It must be {wanted}.{hint}")
    if group["nesterov"] and group["momentum"] == 0:
        raise ValueError("Invalid nesterov: True with momentum 0. Give a momentum, such as 0.9.")
    if group.get("scaling") == "row-column" and (group["fused"] or group["capturable"]):
        raise ValueError(
            'Invalid scaling: "row-column" with fused or capturable. It scales its vectors on the '
            "host's word: leave both out."
        )
    if group["fused"] and group["foreach"]:
        raise ValueError("Invalid fused: True with foreach=True. Give one of the two.")


def require_closure(closure: Any) -> None:
    """Raise for what step cannot call, a loss most of all.

    Example:
        >>> require_closure(None)
        >>> require_closure(1.0)
        Traceback (most recent call last):
            ...
        TypeError: step takes a closure or nothing, got float. Call loss.backward(), then step().
    """
    if closure is not None and not callable(closure):
        kind = type(closure).__name__
        raise TypeError(
            f"step takes a closure or nothing, got {kind}. Call loss.backward(), then step()."
        )


def check_scaling(groups: Iterable[dict[str, Any]]) -> None:
    """Raise ValueError where groups differ in `scaling`: one optimizer keeps one diagonal."""
    found = list(dict.fromkeys(group.get("scaling", "row") for group in groups))
    if len(found) > 1:
        raise ValueError(
            f"Invalid scaling: {found[1]!r} beside {found[0]!r}. All groups share one: give it to "
            "the optimizer, or make two optimizers."
        )


def check_parameters(parameters: Iterable[Tensor]) -> None:
    """Raise ValueError for a parameter whose curvature has no meaning here."""
    for parameter in parameters:
        if not parameter.is_floating_point():
            raise ValueError(
                f"ESGD and JacobiSGD take real floating-point parameters, got {parameter.dtype}. "
                "Give complex parameters as torch.view_as_real of them, or to another optimizer."
            )


def check_layouts(tensors: Iterable[Tensor]) -> None:
    """Raise RuntimeError for sparse gradients, or products with them."""
    if {tensor.layout for tensor in tensors} - {torch.strided}:
        raise RuntimeError(
            "ESGD and JacobiSGD do not take sparse gradients. Build the embedding with "
            "sparse=False, or give its parameters to torch.optim.SparseAdam."
        )


def check_observed(
    parameters: Sequence[Tensor],
    vectors: Sequence[Tensor | None],
    products: Sequence[Tensor | None],
    pending: Pending,
) -> None:
    """Raise ValueError for products that do not fit the parameters or the step they belong to."""
    if not len(vectors) == len(products) == len(parameters):
        raise ValueError(
            f"observe takes one vector and one product for each of the {len(parameters)} "
            f"parameters, in order (None to leave one out); got {len(vectors)} and "
            f"{len(products)}."
        )
    for i, (p, v, hv) in enumerate(zip(parameters, vectors, products, strict=True)):
        if (v is None) != (hv is None):
            raise ValueError(f"observe got only one of vector and product for parameter {i}.")
        if v is not None and hv is not None and not v.shape == hv.shape == p.shape:
            shapes = f"{tuple(v.shape)} and {tuple(hv.shape)}, expected {tuple(p.shape)}"
            raise ValueError(f"observe got wrong shapes for parameter {i}: {shapes}.")
    if pending and (
        pending.vectors is None
        or pending.versions != [None if v is None else v._version for v in pending.vectors]
        or not _same(pending.vectors, vectors)
    ):
        raise ValueError(
            "All products of one step must belong to one vector v, but another was measured "
            "since the last step. Call observe with the same vectors for every micro-batch, and "
            "not with probe."
        )


def _same(first: Sequence[Tensor | None], second: Sequence[Tensor | None]) -> bool:
    return all(
        a is b or (a is not None and b is not None and torch.equal(a, b))
        for a, b in zip(first, second, strict=True)
    )


def check_loaded(given: dict[str, Any], defaults: dict[str, Any]) -> None:
    """Raise ValueError for a state that another optimizer has saved, before anything is loaded."""
    if not given.keys() >= {"state", "param_groups"} or not given["param_groups"]:
        raise ValueError(
            "This is not what optimizer.state_dict() returns: it has no 'state' or no "
            f"'param_groups'. It holds {sorted(map(str, given))}; pass the optimizer's part of a "
            "checkpoint."
        )
    states = [state for state in given["state"].values() if isinstance(state, dict) and state]
    kinds = {group.get("kind", defaults["kind"]) for group in given["param_groups"]}
    if kinds != {defaults["kind"]}:
        raise ValueError(
            f"This state holds the diagonal '{kinds.pop()}', but this optimizer keeps "
            f"'{defaults['kind']}'. Load it into the optimizer class that saved it."
        )
    measures = all(group.keys() >= _OF_ALL_VERSIONS for group in given["param_groups"])
    if not measures or any("step" in state and "probes" not in state for state in states):
        raise ValueError(
            "This state was saved by an optimizer that does not measure curvature. Start with a "
            "new state: the first probe measures the diagonal."
        )
    for group in given["param_groups"]:
        check_group(defaults | group)
    check_scaling(given["param_groups"])
