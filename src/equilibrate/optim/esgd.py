"""ESGD, the paper's optimizer (Algorithm 1)."""

from types import ModuleType
from typing import Any, ClassVar, Final, Literal

from torch import Tensor
from torch.distributed import ProcessGroup
from torch.optim.optimizer import ParamsT

from equilibrate.curvature import Distribution
from equilibrate.diagonals import equilibration
from equilibrate.optim.arguments import DampingKind
from equilibrate.optim.moving import CurvatureOptimizer

ALGORITHM_1: Final[dict[str, Any]] = {
    "decay": None,
    "damping": 1e-4,
    "damping_kind": "absolute",
    "probe_every": 1,
    "warmup_probes": 1,
    "distribution": "gaussian",
}
"""Keyword arguments that make `ESGD(params, lr, **ALGORITHM_1)` the paper's Algorithm 1."""


class ESGD(CurvatureOptimizer):
    """TODO."""

    _kind: ClassVar[ModuleType] = equilibration

    def __init__(
        self,
        params: ParamsT,
        lr: float | Tensor = 0.03,
        *,
        damping: float = 1e-2,
        damping_kind: DampingKind = "relative",
        decay: float | None = 0.9995,
        probe_every: int = 20,
        warmup_probes: int = 20,
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
