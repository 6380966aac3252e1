"""The stacked first-order rules are torch's optimizers, with all the settings that they know."""

import pytest
import torch

from equilibrate.study.stacked_optimizer import StackedOptimizer
from equilibrate.study.stacked_rules import RULES, complete, structure, why_not_stacked

DECAY = {"weight_decay": 0.1}
FIRST_ORDER = {
    "sgd": (torch.optim.SGD, [{"lr": 0.1}, {"lr": 0.2, **DECAY}]),
    "sgd, momentum": (torch.optim.SGD, [{"lr": 0.1, "momentum": m, **DECAY} for m in (0.5, 0.9)]),
    "sgd, nesterov": (
        torch.optim.SGD,
        [{"lr": 0.1, "momentum": m, "nesterov": True, **DECAY} for m in (0.5, 0.9)],
    ),
    "rmsprop": (
        torch.optim.RMSprop,
        [{"lr": 0.1, "alpha": 0.9, "eps": 1e-3}, {"lr": 0.2, **DECAY}],
    ),
    "rmsprop, momentum": (
        torch.optim.RMSprop,
        [{"lr": 0.1, "momentum": m, **DECAY} for m in (0.5, 0.9)],
    ),
    "adagrad": (
        torch.optim.Adagrad,
        [{"lr": 0.1, "lr_decay": 0.1, "eps": 1e-3}, {"lr": 0.2, **DECAY}],
    ),
    "adadelta": (
        torch.optim.Adadelta,
        [{"lr": 1.0, "rho": 0.8, "eps": 1e-3}, {"lr": 0.3, **DECAY}],
    ),
    "adam": (
        torch.optim.Adam,
        [{"lr": 0.1, "betas": (0.5, 0.9), "eps": 1e-3}, {"lr": 0.2, **DECAY}],
    ),
    "adamw": (
        torch.optim.AdamW,
        [{"lr": 0.1, "betas": (0.5, 0.9), "eps": 1e-3}, {"lr": 0.2, "weight_decay": 0.3}],
    ),
}


def test_every_first_order_rule_is_listed():
    ruled = {kind for kind, rule in RULES.items() if rule.update is not None}
    assert {kind for kind, _ in FIRST_ORDER.values()} == ruled


@pytest.mark.parametrize("name", FIRST_ORDER)
def test_a_stacked_rule_is_torchs_optimizer_with_all_its_settings(name):
    kind, settings = FIRST_ORDER[name]
    shapes = [(3, 4), (5,), ()]
    starts = [torch.randn(len(settings), *shape, dtype=torch.float64) for shape in shapes]
    stacked = [start.clone() for start in starts]
    optimizer = StackedOptimizer(kind, settings, stacked)
    singles = [[start[row].clone().requires_grad_() for start in starts] for row in (0, 1)]
    others = [kind(ps, **each) for ps, each in zip(singles, settings, strict=True)]
    for _ in range(25):
        gradients = [torch.randn_like(p) for p in stacked]
        optimizer.move(gradients)
        for row, other in enumerate(others):
            for parameter, gradient in zip(singles[row], gradients, strict=True):
                parameter.grad = gradient[row].clone()
            other.step()
    for row in (0, 1):
        for mine, single in zip(stacked, singles[row], strict=True):
            torch.testing.assert_close(mine[row], single.detach(), rtol=1e-12, atol=1e-13)
        assert not torch.equal(stacked[0][row], starts[0][row])


@pytest.mark.parametrize("name", FIRST_ORDER)
def test_its_numbers_are_all_of_torchs_settings_that_change_a_step(name):
    """What a rule does not know must be at its default, or the trial trains alone."""
    kind, _ = FIRST_ORDER[name]
    known = {*RULES[kind].numbers, *RULES[kind].switches}
    for setting in (
        complete(kind, {"lr": 0.1}).keys() - known - {"lr_schedule", "momentum_schedule"}
    ):
        reason = why_not_stacked(kind, {"lr": 0.1, setting: "another"})
        assert setting in reason
    assert why_not_stacked(kind, {"lr": 0.3}) is None


def test_trials_of_one_stack_share_switches_and_having_momentum():
    sgd = torch.optim.SGD
    plain, heavy, light, nag = (
        structure(sgd, {"lr": 0.1, **more})
        for more in ({}, {"momentum": 0.9}, {"momentum": 0.5}, {"momentum": 0.9, "nesterov": True})
    )
    assert heavy == light
    assert len({plain, heavy, nag}) == 3
