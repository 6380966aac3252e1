"""The laws of the optimizers, each a function of a case and a setting; tests run lists of both.

A case makes values and a scalar function of them, equal each time; a `Setting` is an optimizer
class with its arguments, and perhaps groups.
"""

import io
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from equilibrate import ESGD
from tests.optim.loops import train, train_accumulated, train_by_closure

Function = Callable[[list[Tensor]], Tensor]
Make = Callable[[], tuple[list[Tensor], Function]]

STEPS = 7
# Seven steps of a network amplify a rounding some hundred times; a wrong law is off by far more.
AMPLIFIED = 2e4


@dataclass(frozen=True)
class Setting:
    optimizer: type = ESGD
    options: dict[str, Any] = field(default_factory=dict)
    groups: tuple[dict[str, Any], ...] = ()

    def __call__(self, parameters: list[Tensor], **more: Any) -> Any:
        """Build the optimizer; with groups, the parameters are dealt out to them in turn."""
        options = {"lr": 0.005, "warmup_probes": 3, "probe_every": 2} | self.options | more
        if not self.groups:
            return self.optimizer(parameters, **options)
        dealt = [parameters[i :: len(self.groups)] for i in range(len(self.groups))]
        dealt_groups = zip(dealt, self.groups, strict=True)
        groups = [{"params": p} | g | more for p, g in dealt_groups if p]
        return self.optimizer(groups, **options)


def _leaves(values: list[Tensor]) -> list[Tensor]:
    return [v.detach().clone().requires_grad_() for v in values]


def _trained(make: Make, setting: Setting, factor: float = 1.0, unit: float = 1.0, **more: Any):
    """Train for some steps on factor * f(theta / unit), starting from unit * theta."""
    values, function = make()
    parameters = _leaves([v * unit for v in values])
    optimizer = setting(parameters, **more)
    train(optimizer, lambda: factor * function([p / unit for p in parameters]), STEPS)
    return [p.detach() / unit for p in parameters]


def assert_near(found: list[Tensor], expected: list[Tensor], roundings: float) -> None:
    """Equal up to so many roundings of the largest element of each tensor."""
    for f, e in zip(found, expected, strict=True):
        size = float(e.detach().abs().max()) if e.numel() else 0.0
        bound = roundings * torch.finfo(e.dtype).eps * max(size, 1e-6)
        torch.testing.assert_close(f.detach(), e.detach(), rtol=0, atol=bound)


def amplification(make: Make, setting: Setting) -> float:
    """How many times a change of the start by some roundings has grown at the end of a path.

    Where a path diverges or is chaotic this is without bound, and rounding decides where it ends.
    """
    values, function = make()
    nudge = [1 + 8 * torch.finfo(v.dtype).eps for v in values]
    plain = _trained(make, setting)
    moved = _trained(
        lambda: ([v * n for v, n in zip(values, nudge, strict=True)], function), setting
    )
    growth = [
        float((a - b).abs().max()) / ((n - 1) * max(1e-6, float(v.abs().max())))
        for a, b, v, n in zip(moved, plain, values, nudge, strict=True)
        if v.numel()
    ]
    return max(growth)


def assert_same(found: list[Tensor], expected: list[Tensor]) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def scaling_the_loss_changes_nothing(make: Make, setting: Setting) -> None:
    plain = _trained(make, setting)
    for factor in (1e-7, 0.3, 1e5):
        assert_near(_trained(make, setting, factor=factor), plain, AMPLIFIED)


def scaling_the_parameters_changes_their_unit_alone(make: Make, setting: Setting) -> None:
    plain, limit = _trained(make, setting), setting.options.get("update_limit")
    for unit in (1e-3, 7.0):
        in_unit = {"update_limit": limit * unit} if limit else {}  # it is a length as they are
        assert_near(_trained(make, setting, unit=unit, **in_unit), plain, AMPLIFIED)


def a_probe_touches_neither_gradients_nor_random_state(make: Make, setting: Setting) -> None:
    values, function = make()
    parameters = _leaves(values)
    optimizer = setting(parameters)
    gradients = [torch.rand_like(p) for p in parameters]
    for p, g in zip(parameters, gradients, strict=True):
        p.grad = g.clone()
    held = [p.grad for p in parameters]
    state = torch.get_rng_state()
    assert optimizer.probe(function(parameters))
    assert torch.equal(state, torch.get_rng_state())
    assert all(p.grad is h for p, h in zip(parameters, held, strict=True))
    assert_same([p.grad for p in parameters], gradients)
    assert_same([p.detach() for p in parameters], values)


def micro_batches_equal_the_joined_batch(make: Make, setting: Setting) -> None:
    """Four losses of different curvature, each divided by four, against their mean."""

    def parts(parameters: list[Tensor], function: Function) -> list[Callable[[], Tensor]]:
        def part(i: int) -> Callable[[], Tensor]:
            shifted = 0.02 * i
            return lambda: (i + 1) * function([p + shifted for p in parameters]) / 4

        return [part(i) for i in range(4)]

    values, function = make()
    joined, divided = _leaves(values), _leaves(values)
    losses = parts(joined, function)
    train(setting(joined, warmup_probes=1), lambda: sum(loss() for loss in losses), STEPS)
    train_accumulated(setting(divided, warmup_probes=1), parts(divided, function), STEPS)
    assert_near(divided, [p.detach() for p in joined], AMPLIFIED)


def saving_and_loading_equals_never_stopping(make: Make, setting: Setting) -> None:
    values, function = make()
    straight, stopped = _leaves(values), _leaves(values)
    train(setting(straight), lambda: function(straight), 2 * STEPS)
    first = setting(stopped)
    train(first, lambda: function(stopped), STEPS)
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second = setting(stopped)
    second.load_state_dict(torch.load(file, weights_only=True))
    train(second, lambda: function(stopped), STEPS)
    assert_same([p.detach() for p in stopped], [p.detach() for p in straight])


def foreach_equals_the_reference(make: Make, setting: Setting) -> None:
    assert_near(_trained(make, setting, foreach=True), _trained(make, setting, foreach=False), 1e3)


def differences_measure_what_autograd_measures(make: Make, setting: Setting) -> None:
    """At one point (lr = 0) the diagonals agree to the scheme's own error, u/e + e^2 K.

    The relative step is (3u)^(1/3), so rounding leaves u/e = u^(2/3)/1.44 of the gradient's size,
    truncation as much of the third derivative's; both are within a hundred of the curvature.
    """
    values, function = make()
    exact, measured = _leaves(values), _leaves(values)
    by_probe, by_closure = setting(exact, lr=0.0), setting(measured, lr=0.0)
    train(by_probe, lambda: function(exact), 4)
    train_by_closure(by_closure, lambda: function(measured), 4)
    size = max(float(d.max()) for d in by_probe.diagonal() if d.numel())
    bound = 100 * max(torch.finfo(v.dtype).eps for v in values) ** (2 / 3) * size
    for found, expected in zip(by_closure.diagonal(), by_probe.diagonal(), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=bound)
    assert_same([p.detach() for p in measured], values)


def the_same_seed_gives_the_same_path(make: Make, setting: Setting) -> None:
    assert_same(_trained(make, setting, seed=5), _trained(make, setting, seed=5))


LAWS = [
    scaling_the_loss_changes_nothing,
    scaling_the_parameters_changes_their_unit_alone,
    a_probe_touches_neither_gradients_nor_random_state,
    micro_batches_equal_the_joined_batch,
    saving_and_loading_equals_never_stopping,
    foreach_equals_the_reference,
    differences_measure_what_autograd_measures,
    the_same_seed_gives_the_same_path,
]
