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
    """TODO."""

    _kind: ClassVar[ModuleType] = jacobi

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.001,
        *,
        damping: float = 0.1,
        damping_kind: DampingKind = "relative",
        decay: float | None = 0.9995,
        probe_every: int = 20,
        warmup_probes: int = 100,
        distribution: Distribution = "rademacher",
        momentum: float = 0.0,
        nesterov: bool = False,
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
                "weight_decay": weight_decay,
                "maximize": maximize,
                "foreach": foreach,
                "fused": fused,
                "capturable": capturable,
                "seed": seed,
            },
            process_group,
        )
