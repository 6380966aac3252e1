"""Registry entries for ESGD and JacobiSGD, in the form in which torch tests its own optimizers.

torch keeps its registry in `torch.testing._internal.common_optimizers` (OptimizerInfo,
OptimizerInput, ErrorOptimizerInput). Importing that needs `expecttest`, which no torch wheel
brings along, so the fields used here are written out again, in small and under the same names.
"""

import math
import warnings
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from equilibrate import ALGORITHM_1, ESGD, JacobiSGD


@dataclass(frozen=True)
class OptimizerInput:
    """Keyword arguments that are right; torch's flag `foreach` is left to the tests."""

    desc: str
    kwargs: dict[str, Any]


@dataclass(frozen=True)
class ErrorOptimizerInput:
    """Arguments that are wrong, and what the error says; without `params` any will do."""

    desc: str
    error_regex: str
    kwargs: dict[str, Any] = field(default_factory=dict)
    params: Callable[[], Any] | None = None
    error_type: type[Exception] = ValueError


@dataclass(frozen=True)
class OptimizerInfo:
    optim_cls: type[Optimizer]
    optim_inputs: list[OptimizerInput]
    not_og_supported_flags: tuple[str, ...] = ("foreach", "fused", "maximize", "capturable")


# Several probes, warm-up and ordinary, within the few steps that a test makes.
OFTEN = {"lr": 0.05, "probe_every": 2, "warmup_probes": 3}

INPUTS = [
    OptimizerInput("default", {}),
    OptimizerInput("lr", OFTEN | {"lr": 0.01}),
    OptimizerInput("tensor lr", OFTEN | {"lr": torch.tensor(0.05)}),
    OptimizerInput("momentum", OFTEN | {"momentum": 0.9}),
    OptimizerInput("nesterov", OFTEN | {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    OptimizerInput("limit", OFTEN | {"momentum": 0.9, "update_limit": 0.1}),
    OptimizerInput("growth", OFTEN | {"momentum": 0.9, "growth_limit": 1.01}),
    OptimizerInput("no growth limit", OFTEN | {"momentum": 0.9, "growth_limit": None}),
    OptimizerInput("mean floor", OFTEN | {"momentum": 0.9, "mean_floor": True}),
    OptimizerInput("weight_decay", OFTEN | {"weight_decay": 0.5}),
    OptimizerInput("maximize", OFTEN | {"weight_decay": 0.1, "maximize": True}),
    OptimizerInput("decay", OFTEN | {"decay": 0.5}),
    OptimizerInput("running mean", OFTEN | {"decay": None}),
    OptimizerInput("initial damping", OFTEN | {"damping": 0.3, "damping_kind": "initial"}),
    OptimizerInput("absolute damping", OFTEN | {"damping": 0.1, "damping_kind": "absolute"}),
    OptimizerInput("no damping", OFTEN | {"damping": 0.0}),
    OptimizerInput("gaussian", OFTEN | {"distribution": "gaussian"}),
    OptimizerInput("every step", OFTEN | {"probe_every": 1, "seed": 7}),
    OptimizerInput("no warm-up", OFTEN | {"probe_every": 3, "warmup_probes": 1}),
]

OPTIM_DB = [
    OptimizerInfo(
        ESGD,
        [
            *INPUTS,
            OptimizerInput("Algorithm 1", ALGORITHM_1 | {"lr": 0.01, "damping": 0.01}),
            OptimizerInput("rows and columns", OFTEN | {"scaling": "row-column"}),
        ],
    ),
    OptimizerInfo(JacobiSGD, INPUTS),
]


@dataclass(frozen=True)
class Entry:
    """One optimizer with one set of its inputs: what every law of the contract runs over."""

    info: OptimizerInfo
    input: OptimizerInput

    def __call__(self, params: Any, **overrides: Any) -> Optimizer:
        """Build the optimizer; a tensor learning rate is its own each time."""
        return self.info.optim_cls(params, **deepcopy(self.input.kwargs) | overrides)

    def __str__(self) -> str:
        return f"{self.info.optim_cls.__name__}-{self.input.desc}"


ENTRIES = [Entry(info, given) for info in OPTIM_DB for given in info.optim_inputs]
WITH_MOMENTUM = [entry for entry in ENTRIES if entry.input.desc == "momentum"]

over_entries = pytest.mark.parametrize("entry", ENTRIES, ids=str)
over_optimizers = pytest.mark.parametrize("entry", WITH_MOMENTUM, ids=str)

over_kinds = pytest.mark.parametrize("kind", [info.optim_cls for info in OPTIM_DB])
over_dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
over_all_dtypes = pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str
)


def step_alone(optimizer: Optimizer, closure: Callable[[], float] | None = None) -> Any:
    """A step without loss or gradients; that a probe would be due by now is not the question."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="A probe is due")
        return optimizer.step(closure)


def wrong(name: str, value: Any, also: str = "") -> ErrorOptimizerInput:
    """A hyper-parameter out of range: the message has its name and its value."""
    shown = repr(value).replace("(", r"\(").replace(")", r"\)").replace("[", r"\[")
    return ErrorOptimizerInput(
        f"{name}={value}", rf"Invalid {name}: {shown}.*{also}", kwargs={name: value}
    )


WRONG_HYPER_PARAMETERS = [
    wrong("lr", -0.5),
    wrong("lr", math.nan),
    wrong("lr", math.inf),
    wrong("lr", "fast"),
    wrong("lr", torch.tensor(-0.5)),
    wrong("lr", torch.tensor(math.nan)),
    pytest.param(
        wrong("lr", torch.tensor(math.inf)),
    ),
    wrong("lr", torch.tensor([0.25, 0.5]), "one-element tensor"),
    wrong("damping", -1),
    wrong("damping_kind", "ratio", "'relative', 'initial', 'absolute'"),
    wrong("decay", 1.0, r"in \(0, 1\)"),
    wrong("decay", 0.0),
    wrong("probe_every", 0),
    wrong("probe_every", 1.5, "whole number"),
    wrong("warmup_probes", 0),
    wrong("distribution", "uniform", "'gaussian', 'rademacher'"),
    wrong("momentum", -0.5),
    wrong("momentum", 1.0, r"in \[0, 1\)"),
    wrong("nesterov", True, "Give a momentum"),
    wrong("nesterov", "yes"),
    wrong("update_limit", 0.0, "None \\(no limit\\)"),
    wrong("growth_limit", 1.0, "None \\(no limit\\) or a finite number > 1"),
    wrong("weight_decay", -1),
    wrong("maximize", "yes"),
    wrong("foreach", "yes"),
    wrong("seed", 2**63),
    wrong("fused", "yes", "None, True or False"),
    wrong("capturable", None, "True or False"),
]

_ONE, _TWO = nn.Parameter(torch.ones(1, 1)), nn.Parameter(torch.ones(1, 1))

# The first five are torch's `get_error_inputs_for_all_optims`, with torch's own messages.
WRONG_PARAMETERS = [
    ErrorOptimizerInput(
        "a bare tensor",
        "should be an iterable of Tensors or dicts",
        params=lambda: _ONE,
        error_type=TypeError,
    ),
    ErrorOptimizerInput(
        "twice in a group",
        "a parameter group with duplicate parameters",
        params=lambda: [_ONE, _ONE],
        error_type=UserWarning,
    ),
    ErrorOptimizerInput(
        "in two groups",
        "some parameters appear in more than one parameter group",
        params=lambda: [{"params": _ONE}, {"params": _ONE}],
    ),
    ErrorOptimizerInput(
        "one named, one not",
        "all optimizer params should be with/without names",
        params=lambda: [("weight", _ONE), _TWO],
    ),
    ErrorOptimizerInput(
        "one group named, one not",
        "all optimizer param groups should be with/without names",
        params=lambda: [{"params": [_ONE], "lr": 0.1}, {"params": [("weight", _TWO)]}],
    ),
    ErrorOptimizerInput("none at all", "empty parameter list", params=lambda: []),
    ErrorOptimizerInput("not a leaf", "non-leaf Tensor", params=lambda: [_ONE * 2]),
    ErrorOptimizerInput(
        "complex",
        "real floating-point parameters, got torch.complex64",
        params=lambda: [torch.zeros(2, dtype=torch.complex64)],
    ),
    ErrorOptimizerInput(
        "integers",
        "real floating-point parameters, got torch.int64",
        params=lambda: [torch.zeros(2, dtype=torch.int64)],
    ),
]


def network(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    """The network torch compares its implementations on."""
    with torch.random.fork_rng():
        torch.manual_seed(1)
        layers = [nn.Linear(2, 3), nn.Sigmoid(), nn.Linear(3, 1), nn.Sigmoid()]
        return nn.Sequential(*layers).to(dtype)


def loss_of(model: nn.Module) -> Callable[[], Tensor]:
    """A loss of `network` that still has far to fall."""
    dtype = next(model.parameters()).dtype
    inputs = torch.tensor([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]], dtype=dtype)
    return lambda: (model(inputs) - 0.9).square().mean()


def affine(weight: Tensor, bias: Tensor) -> Callable[[], Tensor]:
    """torch's basic case: |weight input + bias|^2, for a weight of five columns."""
    inputs = torch.tensor([0.5, -1.0, 0.2, 1.5, -0.7], dtype=weight.dtype)
    return lambda: (weight.mv(inputs) + bias).square().sum()


def weight_and_bias(dtype: torch.dtype = torch.float32) -> tuple[nn.Parameter, nn.Parameter]:
    generator = torch.Generator().manual_seed(3)
    both = torch.randn(10, 6, dtype=torch.float64, generator=generator).to(dtype)
    return nn.Parameter(both[:, :5].clone()), nn.Parameter(both[:, 5].clone())


def copies(parameters: Any) -> list[Tensor]:
    return [p.detach().clone() for p in parameters]


def identical(one: Any, other: Any) -> bool:
    """Tell whether two parameters, state dicts or lists of them agree in every bit."""
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(identical(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(identical, one, other))
    return type(one) is type(other) and one == other
