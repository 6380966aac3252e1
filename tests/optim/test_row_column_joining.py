"""ESGD(scaling="row-column") where parameters join: beside columns that are scaled already."""

import pytest
import torch

from equilibrate import ESGD
from tests.optim.laws import AMPLIFIED, assert_near
from tests.optim.test_row_column import badly_scaled

STEPS, JOINING = 8, 3
FACTORS = (1e-6, 0.3, 1e3)
SETTINGS = {
    "relative damping": {},
    "no damping": {"damping": 0.0},
    "initial damping": {"damping_kind": "initial"},
    "too few vectors for rounds": {"warmup_probes": 3},
    "no warm-up": {"warmup_probes": 1},
}


def at_once(first, second, **settings):
    return ESGD([first, second], **settings), None


def at_once_without_a_warm_up(first, second, **settings):
    groups = [{"params": [first]}, {"params": [second], "warmup_probes": 1}]
    return ESGD(groups, **settings), None


def added(first, second, **settings):
    optimizer = ESGD([first], **settings)
    return optimizer, lambda: optimizer.add_param_group({"params": [second]})


def unfrozen(first, second, **settings):
    second.requires_grad_(False)
    return ESGD([first, second], **settings), lambda: second.requires_grad_(True)


def reached_by_a_later_loss(first, second, **settings):
    return ESGD([first, second], **settings), lambda: None


WAYS = [at_once, at_once_without_a_warm_up, added, unfrozen, reached_by_a_later_loss]


def two_parts():
    return [torch.ones(n, dtype=torch.float64, requires_grad=True) for n in (3, 5)]


def quadratic(matrix, *parts):
    x = torch.cat(parts)
    return x @ matrix @ x / 2


def step(optimizer, *losses):
    for loss in losses:
        optimizer.probe(loss)
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def trained(way, settings, factor):
    """Both parts after some steps on factor * f, which the second joins on the way."""
    first, second = two_parts()
    options = {"lr": 0.01, "probe_every": 2, "scaling": "row-column"} | settings
    optimizer, join = way(first, second, **options)
    for number in range(STEPS):
        if join and number == JOINING:
            join()
        joined = join is None or number >= JOINING
        parts = [first, second if joined else second.detach()]
        step(optimizer, factor * quadratic(badly_scaled(), *parts))
    return [first, second]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_scaling_the_loss_changes_nothing(way, settings):
    plain = trained(way, settings, 1.0)
    for factor in FACTORS:
        assert_near(trained(way, settings, factor), plain, AMPLIFIED)


def calibrated(factor):
    """The diagonals where the first losses of calibrate do not reach the second part."""
    parts = two_parts()
    early = [parts[0], parts[1].detach()]
    optimizer = ESGD(parts, scaling="row-column")
    losses = (factor * quadratic(badly_scaled(), *each) for each in (early, early, parts, parts))
    assert optimizer.calibrate(losses) == 4
    return optimizer.diagonal()


@pytest.mark.parametrize("factor", FACTORS)
def test_scaling_what_is_calibrated_on_scales_d_alike(factor):
    assert_near(calibrated(factor), [factor * d for d in calibrated(1.0)], AMPLIFIED)


def settled(matrix, others):
    """The d of what joins where the others keep theirs: d_i = sum_j H_ij^2 / d_j, its i alone."""
    new = slice(len(others), None)
    d = torch.cat([others, torch.ones_like(matrix[0, new])])
    for _ in range(100):  # each halves what is wrong
        d[new] = (d * (matrix.square() @ d.reciprocal())).sqrt()[new]
    return d[new]


@pytest.mark.parametrize("unit", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("seed", range(3))
def test_the_warm_up_finds_the_unit_of_what_joins(seed, unit):
    units = torch.tensor([1.0] * 3 + [unit] * 5, dtype=torch.float64)
    matrix = units.unsqueeze(1) * badly_scaled(seed=seed) * units
    first, second = two_parts()
    optimizer = ESGD([first], lr=0.0, scaling="row-column", damping=0.0)
    step(optimizer, quadratic(matrix, first, second.detach()))
    optimizer.add_param_group({"params": [second]})
    step(optimizer, quadratic(matrix, first, second))
    others, new = optimizer.diagonal()
    expected = settled(matrix, others)
    # A column taken for one of the mean makes the start too large by 1 + their quotient at most,
    # three rounds leave the eighth root of that, and five vectors a round a factor of three.
    start = 1 + expected.max() / others.mean()
    assert (new / expected).log10().abs().max() < start.log10() / 8 + 0.5


@pytest.mark.parametrize(("own", "shared", "too_small"), [(3.0, 0.0, 1), (0.0, 3.0, 4)])
def test_of_micro_batches_what_is_shared_with_the_others_counts_once(own, shared, too_small):
    """docs/limits.md: d = own^2 / d + shared^2 / d_other, and the other's is of the whole step."""
    first, second = (torch.ones(1, dtype=torch.float64, requires_grad=True) for _ in range(2))
    matrix = torch.tensor([[1.0, shared], [shared, own]], dtype=torch.float64)
    optimizer = ESGD([first], lr=0.0, scaling="row-column", damping=0.0)
    step(optimizer, *(quadratic(matrix, first, second.detach()) / 4 for _ in range(4)))
    optimizer.add_param_group({"params": [second]})
    step(optimizer, *(quadratic(matrix, first, second) / 4 for _ in range(4)))
    expected = (own + shared**2) / too_small
    torch.testing.assert_close(optimizer.diagonal()[1].item(), expected)
