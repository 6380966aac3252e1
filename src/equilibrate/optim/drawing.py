"""Drawing a probe's vector for the parameters of one group, by the quickest way that draws it."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from equilibrate.curvature.fused import draw_signs
from equilibrate.curvature.vectors import draw_signs_together
from equilibrate.distributed import all_plain, draw_part
from equilibrate.kernels import capture


def drawn(group: Mapping[str, Any], numbered: Sequence[tuple[int, Tensor]]) -> list[Tensor]:
    """Return the vector of a group's next probe: signs at once, where that can be.

    Args:
        group: seed, distribution and the number of the probe.
        numbered: the parameters, each with its number among all of the optimizer's.
    """
    seed, probe = group["seed"], group["probe_index"]
    likes, places = [p for _, p in numbered], [i for i, _ in numbered]
    if group["distribution"] == "rademacher" and likes and all_plain(likes):
        if group["fused"] and capture.runs_kernels(likes[0].device):
            return draw_signs(likes, places, seed=seed, probe=probe)
        readable = isinstance(probe, int) or capture.is_host(probe.device)
        if readable and all(p.device.type == "cpu" for p in likes):
            return draw_signs_together(likes, places, seed=seed, probe=int(probe))
    return [
        draw_part(group["distribution"], p, seed=seed, probe=probe, parameter=i)
        for i, p in numbered
    ]
