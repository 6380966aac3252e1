"""A fold whose numbers are renewed by two kernels, in the usual case of `Settling._fold_on_device`.

The usual case: one group, all of whose measured parameters are in the product. What it leaves is
what the plain operations of `device_numbers` leave, to the rounding of double precision.
"""

from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from equilibrate.diagonals import equilibration, fused
from equilibrate.optim.columns import Columns
from equilibrate.optim.device_numbers import Damped, laid_out_like

Group = dict[str, Any]


def fold(
    kind: ModuleType, columns: Columns, products: Sequence[Tensor], group: Group, damped: Damped
) -> None:
    """Average one product into the diagonals, unless it is not finite, and renew all numbers."""
    from equilibrate.kernels import numbers

    norms = torch.stack(list(torch._foreach_norm(list(products), 1)))
    roots = kind is equilibration
    timing = columns["step"], columns["probed_at"], columns["weight"]
    found = numbers.shares(norms, *timing, decay=group["decay"], roots=roots)
    diagonals = [state["diagonal"] for state in columns.states]
    entering = laid_out_like(products, diagonals)
    totals, seen = fused.fold(kind, diagonals, entering, found.old, found.new, found.fine)
    names = ("weight", "probes", "probed_at", "scale", "unseen")
    own = [columns[name] for name in names]
    renewed = ("mean_scale", "initial_scale", "probe_index", "dropped_probes")
    common = (group[name] for name in renewed)
    share = None if group["damping_kind"] == "absolute" else group["damping"]
    initial = group["damping_kind"] == "initial"
    divisor = numbers.Divisor(share, initial, damped.noise, damped.damping, damped.fill)
    kept = numbers.Kept(*own, *common)
    numbers.renew_(kept, divisor, found, columns["step"], columns.sizes, totals, seen)
