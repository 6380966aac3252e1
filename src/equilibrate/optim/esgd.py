"""ESGD, the paper's optimizer (Algorithm 1)."""

from types import ModuleType
from typing import Any, Final, Literal

from torch import Tensor
from torch.distributed import ProcessGroup
from torch.optim.optimizer import ParamsT

from equilibrate.curvature import Distribution
from equilibrate.diagonals import equilibration, row_column
from equilibrate.optim.arguments import DampingKind, Scaling
from equilibrate.optim.row_column import RowColumn

ALGORITHM_1: Final[dict[str, Any]] = {
    "decay": None,
    "damping": 1e-4,
    "damping_kind": "absolute",
    "probe_every": 1,
    "warmup_probes": 1,
    "distribution": "gaussian",
}
"""Keyword arguments that make `ESGD(params, lr, **ALGORITHM_1)` the paper's Algorithm 1."""


class ESGD(RowColumn):
    """Equilibrated SGD: the gradient divided by the row norms of the Hessian, plus damping.

        D     <- sqrt(E[(Hv)^2])
        theta <- theta - lr * g / (D + damping)

    (Dauphin, de Vries & Bengio 2015, Algorithm 1). D costs one Hessian-vector product with a random
    v every `probe_every` steps; H is never formed. The learning rate has no unit: the spectral
    radius of D^-1 H is at most sqrt(N), so one value suits many networks.

    Call `probe(loss)` before `loss.backward()` in every iteration (it returns at once when no probe
    is due), or hand torch's usual closure to `step`.

    Args:
        params: parameters, or groups of them, as for any torch optimizer.
        lr: learning rate, in units of D^-1 g.
        damping: added to D. See `damping_kind`.
        damping_kind: "relative": a share of the mean of D over the parameter's own tensor, so that
            scaling the loss changes nothing; an element whose curvature was never seen non-zero
            takes that mean for its own. "initial": a share of the mean over all parameters, of
            each when it first moved: one number for all tensors and the whole run, which only
            parameters that join change; for long runs with much momentum (docs/strong-damping.md).
            "absolute": the number itself, as in the paper.
        decay: how the average over probes forgets, per optimizer step; None never forgets
            (Algorithm 1). In runs of 100,000 steps and more 0.9995 ended lower than the default.
        probe_every: optimizer steps between probes.
        warmup_probes: vectors drawn on the very first loss; 1 means no warm-up.
        distribution: of v, "rademacher" (signs) or "gaussian".
        momentum: of the preconditioned gradient: buffer = momentum * buffer + g / (D + damping).
        nesterov: look ahead by one step of momentum.
        update_limit: the largest |g / (D + damping)| of one element; None for no limit. On a
            quadratic |g_i| <= D_i |theta - theta*| by Cauchy and Schwarz, so that no element says
            more than how far away the minimum is: a larger one tells of a D measured elsewhere.
            In units of the parameters.
        growth_limit: with momentum, how many times its running average an update may measure; None
            for no limit. With u = g / (D + damping) over all parameters and n its root mean square,
            the buffer takes f u, f = min(1, growth_limit * a / n) with a the average of f n over
            the last 500 steps (1.5 times as much is allowed in the first 20, anything in the
            first). D is measured once in 20 steps: where the loss rises in between, gradients
            outgrow it, and momentum adds such steps up. It has no unit. Costs a pass over g and D.
            Groups without momentum are left alone; the smallest limit of the others holds for all.
        mean_floor: True for a floor under the mean of D over all parameters, at what it was when
            they first moved: where it is smaller, the update is multiplied by how much, so that
            steps do not grow as curvature falls (docs/momentum.md). It wants a warm-up, for one
            vector says little about a mean. Frozen parameters keep their share in it. An
            `update_limit` is taken before. It has no unit.
        weight_decay: decoupled, not preconditioned: theta shrinks by lr * weight_decay.
        maximize: climb instead of descending.
        foreach: False for the reference update, one tensor at a time; else many at once.
        fused: True for one pass over memory: Triton kernels for all tensors at once on a GPU,
            compiled C++ on a CPU. No step waits for the device then, so that a product that is not
            finite is dropped at once but told of later (`state_dict`, `diagonal`).
        capturable: True if iterations are captured in CUDA graphs (docs/speed.md): all numbers,
            the learning rate too if it is a tensor, are read from the device.
        scaling: "row": D holds the row norms of H, as in the paper. "row-column": D is such that
            rows and columns of D^-1/2 H D^-1/2 have norm one, at the same cost; for parameters
            in units that differ by decades (docs/fight.md). One for all groups.
        seed: of the probe vectors; torch's own generators are never read or moved.
        process_group: the ranks that train this model together: None for all of them, where
            torch.distributed is initialised, a group for some, False where each has a model of
            its own. Products are averaged over the ranks, as DistributedDataParallel averages
            gradients, before they are squared.

    Departures from the paper, each measured in docs/defaults.md: signs instead of normals (less
    variance, a fraction of the cost), a mean that forgets, a warm-up of twenty vectors (with one
    vector the expected first step is infinite), damping relative to D. `ESGD(params, lr,
    **ALGORITHM_1)` is the paper to the letter, product counts k and all.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        >>> optimizer = ESGD(model.parameters(), lr=0.02)
        >>> x, y = torch.randn(32, 4), torch.randn(32, 1)
        >>> for _ in range(100):
        ...     loss = (model(x) - y).square().mean()
        ...     measured = optimizer.probe(loss)
        ...     loss.backward()
        ...     optimizer.step()
        ...     optimizer.zero_grad()
        >>> [tuple(d.shape) for d in optimizer.diagonal()]
        [(8, 4), (8,), (1, 8), (1,)]
    """

    @property
    def _kind(self) -> ModuleType:  # type: ignore[override]
        # Of the groups, which torch saves, copies and loads; it has none before it has started.
        groups = self.__dict__.get("param_groups") or [{}]
        return row_column if groups[0].get("scaling") == "row-column" else equilibration

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.02,
        *,
        damping: float = 1e-2,
        damping_kind: DampingKind = "relative",
        decay: float | None = 0.998,
        probe_every: int = 20,
        warmup_probes: int = 20,
        distribution: Distribution = "rademacher",
        momentum: float = 0.0,
        nesterov: bool = False,
        update_limit: float | None = None,
        growth_limit: float | None = 2.0,
        mean_floor: bool = False,
        weight_decay: float = 0.0,
        maximize: bool = False,
        foreach: bool | None = None,
        fused: bool | None = None,
        capturable: bool = False,
        scaling: Scaling = "row",
        seed: int = 0,
        process_group: ProcessGroup | Literal[False] | None = None,
    ) -> None:
        """Take the hyper-parameters; see the class for their meaning."""
        super().__init__(
            params,
            {
                "lr": lr,
                "damping": damping,
                "damping_kind": damping_kind,
                "decay": decay,
                "probe_every": probe_every,
                "warmup_probes": warmup_probes,
                "distribution": distribution,
                "momentum": momentum,
                "nesterov": nesterov,
                "update_limit": update_limit,
                "growth_limit": growth_limit,
                "mean_floor": mean_floor,
                "weight_decay": weight_decay,
                "maximize": maximize,
                "foreach": foreach,
                "fused": fused,
                "capturable": capturable,
                "scaling": scaling,
                "seed": seed,
            },
            process_group,
        )
