"""A record in one line: the handful of its entries that matter first."""

import math
from collections.abc import Mapping
from typing import Any, TypeGuard

from equilibrate.monitor.stepping import MONITORS, OPTIMIZERS

_DEAD = 0.9  # the share of a layer without curvature from which it is called dead
_EXPLODED = 1000.0  # times the first loss; beyond it flat units may as well be saturated
_NAMED = 2  # dead layers by name; of more the number

_NO_RECORD = (
    "summary takes a record of a Monitor, got {}. monitor(loss) returns None where no measurement "
    "is due: if record: print(summary(record))."
)
_PRODUCT = "preconditioned/sharpness_times_lr"


def summary(record: Mapping[str, Any]) -> str:
    """Return one line: loss, learning rate times sharpness, condition, dead layers, error of D.

    Takes what a sink is given, and a line read back from `JSONLines`.

    Example:
        >>> import torch
        >>> from equilibrate.monitor import Monitor
        >>> weight = torch.tensor([1.0, 1.0], requires_grad=True)
        >>> optimizer = torch.optim.SGD([weight], lr=0.03)
        >>> monitor = Monitor([("w", weight)], optimizer, lambda record: None)
        >>> record = monitor((torch.tensor([1.0, 100.0]) * weight**2).sum() / 2)
        >>> print(summary(record))
        step 0: loss 50.5; lr*sharpness 3 ABOVE its limit 2; condition 100, with ESGD's diagonal 1.5
    """
    _check(record)
    head = f"step {record.get('step', '?')}: loss {_number(record.get('loss'))}"
    if "unmeasured" in record:
        return f"{head}; not measured: {record['unmeasured']}"
    parts = [head, _verdict(record), _condition(record), _flat(record), _error(record)]
    return "; ".join(part for part in parts if part)


def _check(record: Any) -> None:
    """Raise for what is no record, None above all."""
    if not isinstance(record, Mapping):
        raise TypeError(_NO_RECORD.format(type(record).__name__))
    if "loss" not in record:
        raise ValueError(_NO_RECORD.format("a dict without a loss"))


def _verdict(record: Mapping[str, Any]) -> str:
    if "preconditioned/diagonal" not in record:
        return ""  # before that entry the product was not always that of the optimizer's own step
    if _PRODUCT not in record:
        plain = f"sharpness {_number(record['sharpness'])}, " if "sharpness" in record else ""
        why = record.get("preconditioned/no_product", "")
        return f"{plain}lr*sharpness not known ({why})"
    product, limit = record[_PRODUCT], record["preconditioned/stability_limit"]
    beside = "ABOVE its" if product is not None and product > limit else "of"
    return f"lr*sharpness {_number(product)} {beside} limit {_number(limit)}"


def _condition(record: Mapping[str, Any]) -> str:
    """Return the condition number before and after; of a tenth where half is not curved at all.

    Where no products resolve either, what the one over the median is at least.
    """
    whose = _whose(str(record.get("preconditioned/diagonal", OPTIMIZERS)))
    for told in (_closed, _bound):
        for which in ("condition_median", "condition_top_tenth"):
            before, after = told(record, which), told(record, f"preconditioned/{which}")
            if before and after:
                return f"condition {before}, with {whose} {after}"
    return ""


def _closed(record: Mapping[str, Any], name: str) -> str:
    """Return a number in words where its interval ends, or is not told; else nothing."""
    value = record.get(name)
    ends = _is_finite(value) and _is_finite(record.get(f"{name}_high", value))
    return _number(value) if ends else ""


def _bound(record: Mapping[str, Any], name: str) -> str:
    """Return a number in words, or its lower bound where that is all that products tell."""
    low = record.get(f"{name}_low")
    return _closed(record, name) or (f"at least {_number(low)}" if _is_finite(low) else "")


def _whose(owners: str) -> str:
    """Return whose diagonal it is, in the fewest words."""
    if owners.startswith(OPTIMIZERS):
        return "its diagonal"
    return "ESGD's diagonal" if owners == MONITORS else "its diagonal and ESGD's"


def _flat(record: Mapping[str, Any]) -> str:
    """Return the dead layers, or else the flattest one."""
    shares = _by_layer(record, "share_flat")
    dead = [name for name, share in shares.items() if share >= _DEAD]
    if dead:
        more = f" and {len(dead) - _NAMED} more" if len(dead) > _NAMED else ""
        return f"{_dead(record)}: {', '.join(dead[:_NAMED])}{more}"
    if not shares or not max(shares.values()):
        return ""
    flattest = max(shares, key=shares.__getitem__)
    return f"flattest {flattest}, {shares[flattest]:.0%}"


def _dead(record: Mapping[str, Any]) -> str:
    """Return what a layer without curvature is called: long steps drive units far out as well."""
    growth = record.get("loss_growth")
    if not _is_finite(growth) or growth < _EXPLODED:
        return "DEAD"
    return f"DEAD or saturated, for the loss has grown {_number(growth)} times"


def _error(record: Mapping[str, Any]) -> str:
    """Return how well the optimizer knows its own diagonal of the Hessian, where it keeps one."""
    whose = str(record.get("preconditioned/diagonal", ""))
    errors = _by_layer(record, "relative_error")
    if not errors or not whose.startswith("optimizer's") or "squared gradient" in whose:
        return ""
    worst = max(errors, key=errors.__getitem__)
    return f"diagonal known to ±{errors[worst]:.0%} (the worst: {worst})"


def _by_layer(record: Mapping[str, Any], entry: str) -> dict[str, float]:
    """Return the finite numbers of one entry, by the name of the layer."""
    end = f"/{entry}"
    return {
        name.removeprefix("layers/").removesuffix(end): float(value)
        for name, value in record.items()
        if name.startswith("layers/") and name.endswith(end) and _is_finite(value)
    }


def _is_finite(value: Any) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and math.isfinite(value)


def _number(value: Any) -> str:
    return f"{value:.3g}" if _is_finite(value) else "not finite"
