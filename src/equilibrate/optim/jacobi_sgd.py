"""JacobiSGD, the rival that the paper compares ESGD with (section 6)."""

from types import ModuleType
from typing import ClassVar, Literal

from torch import Tensor
from torch.distributed import ProcessGroup
from torch.optim.optimizer import ParamsT

from equilibrate.curvature import Distribution
from equilibrate.diagonals import jacobi
from equilibrate.optim.arguments import DampingKind
from equilibrate.optim.moving import CurvatureOptimizer


class JacobiSGD(CurvatureOptimizer):
    """Jacobi SGD: the gradient divided by the absolute diagonal of the Hessian, plus damping.

        D     <- |E[v * Hv]|
        theta <- theta - lr * g / (D + damping)

    (Section 6 of the paper; the estimator is that of Bekas et al. 2007.) Positive and negative
    curvature cancel in diag(H), so D may pass through zero where the loss curves most: section 5 of
    the paper argues, and its experiments show, that this is the wrong diagonal for saddles. It is
    here to be compared with. On large networks the estimate is mostly noise (its variance is that
    of the whole row), hence more warm-up, more damping and a smaller learning rate than ESGD's.

    Arguments and methods are those of `ESGD`. `mean_floor` needs the long warm-up here: noise adds
    to |E[v * Hv]|, so that its mean falls as probes are averaged, whatever the curvature does.

    Example:
        >>> import torch
        >>> weight = torch.tensor([3.0, 1.0], requires_grad=True)
        >>> optimizer = JacobiSGD([weight], lr=0.5)
        >>> loss = weight[0] ** 2 - weight[1] ** 2
        >>> optimizer.probe(loss)
        True
        >>> optimizer.diagonal()
        [tensor([2., 2.])]
    """

    _kind: ClassVar[ModuleType] = jacobi

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.001,
        *,
        damping: float = 0.1,
        damping_kind: DampingKind = "relative",
        decay: float | None = 0.998,
        probe_every: int = 20,
        warmup_probes: int = 100,
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
                "seed": seed,
            },
            process_group,
        )
