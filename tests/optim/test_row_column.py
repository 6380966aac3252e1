"""ESGD(scaling="row-column"): against the exact scaling, and where it leaves row equilibration."""

import copy

import pytest
import torch

from equilibrate import ESGD
from equilibrate.exact import row_column
from equilibrate.optim.damping import damping_and_fill, noise_level

PROBES = 400
ROWS_AND_COLUMNS = {"scaling": "row-column", "damping": 0.0, "decay": None}


def badly_scaled(size=8, seed=0, decades=1.0):
    """An indefinite symmetric matrix S A S, S from 10^-decades to 10^decades."""
    generator = torch.Generator().manual_seed(seed)
    entries = torch.randn(size, size, generator=generator, dtype=torch.float64)
    scale = 10 ** torch.linspace(-decades, decades, size, dtype=torch.float64)
    return scale.unsqueeze(1) * (entries + entries.T) * scale


def measured(matrix, steps, factor=1.0, **settings):
    """The optimizer after measuring a quadratic at every step, without moving."""
    parts = [torch.ones(n, dtype=torch.float64, requires_grad=True) for n in (3, len(matrix) - 3)]
    optimizer = ESGD(parts, lr=0.0, probe_every=1, **(ROWS_AND_COLUMNS | settings))
    for _ in range(steps):
        x = torch.cat(parts)
        loss = factor * x @ matrix @ x / 2
        optimizer.probe(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return optimizer


def joined(optimizer):
    return torch.cat(optimizer.diagonal())


@pytest.mark.parametrize("distribution", ["gaussian", "rademacher"])
@pytest.mark.parametrize("seed", range(2))
def test_it_settles_at_the_exact_scaling(distribution, seed):
    matrix = badly_scaled(seed=seed)
    d = joined(measured(matrix, PROBES, distribution=distribution))
    norms = (matrix / d.outer(d).sqrt()).norm(dim=1)
    # As in tests/paper/test_row_column_sgd.py: 1/sqrt(2k), twice for what d owes to the other
    # entries of d, four deviations.
    bound = 4 * 2 / (2 * PROBES) ** 0.5
    assert (norms - 1).abs().max() < bound
    # The norm of a row is one where d is exact; d itself is off by up to twice as much, and by the
    # spread of the inverse of 1 + B, which is at most 1 / (1 - 0.75) on these matrices.
    exact = row_column(matrix)
    assert (d / exact - 1).abs().max() < 2 * 4 * bound


def test_the_warm_up_alone_undoes_six_decades():
    matrix = badly_scaled(decades=3.0)
    d = joined(measured(matrix, 1))
    # Five vectors a round leave each mean within a factor of about two; the scaling spans 1e12.
    assert (d / row_column(matrix)).log10().abs().max() < 1.0


def test_the_warm_up_costs_as_many_products_as_for_rows():
    matrix = badly_scaled()
    counts = [
        measured(matrix, 1, warmup_probes=20, scaling=scaling).param_groups[0]["probe_index"]
        for scaling in ("row", "row-column")
    ]
    assert counts == [20, 20]


@pytest.mark.parametrize("damping", [0.0, 0.01])
def test_scaling_the_loss_scales_d_alike(damping):
    plain, scaled = (
        joined(measured(badly_scaled(), 30, factor, damping=damping)) for factor in (1.0, 64.0)
    )
    torch.testing.assert_close(scaled, 64 * plain)


def test_micro_batches_count_as_one_loss():
    matrix = badly_scaled()
    whole = joined(measured(matrix, 1, factor=2.0))
    parts = [torch.ones(n, dtype=torch.float64, requires_grad=True) for n in (3, 5)]
    optimizer = ESGD(parts, lr=0.0, probe_every=1, **ROWS_AND_COLUMNS)
    for _ in range(2):
        x = torch.cat(parts)
        loss = x @ matrix @ x / 2
        optimizer.probe(loss)
        loss.backward()
    optimizer.step()
    torch.testing.assert_close(joined(optimizer), whole)


def test_a_copy_and_a_loaded_state_keep_the_scaling():
    optimizer = measured(badly_scaled(), 3)
    loaded = ESGD([torch.ones(3), torch.ones(5)], lr=0.0)
    loaded.load_state_dict(optimizer.state_dict())
    for twin in (copy.deepcopy(optimizer), loaded):
        assert twin._kind is optimizer._kind


def test_products_from_elsewhere_are_refused():
    optimizer = measured(badly_scaled(), 1)
    with pytest.raises(ValueError, match="row-column"):
        optimizer.observe([None, None], [None, None])


def test_calibrating_starts_with_the_warm_up():
    matrix = badly_scaled(decades=3.0)
    parts = [torch.ones(n, dtype=torch.float64, requires_grad=True) for n in (3, 5)]
    optimizer = ESGD(parts, lr=0.0, **ROWS_AND_COLUMNS)
    x = torch.cat(parts)
    assert optimizer.calibrate(iter([x @ matrix @ x / 2] * 3)) == 3
    assert (joined(optimizer) / row_column(matrix)).log10().abs().max() < 1.0


@pytest.mark.parametrize("first", ["row", "row-column"])
@pytest.mark.parametrize("given", [{}, {"fused": True}])
def test_groups_share_one_scaling(first, given):
    """Each D follows from all columns of H: two of them in one optimizer mean nothing."""
    other = {"row": "row-column", "row-column": "row"}[first]
    parts = [torch.ones(n, requires_grad=True) for n in (3, 5)]
    groups = [{"params": [parts[0]], "scaling": first}, {"params": [parts[1]], "scaling": other}]
    with pytest.raises(ValueError, match="Invalid scaling"):
        ESGD([groups[0], {**groups[1], **given}])
    optimizer = ESGD([parts[0]], scaling=first)
    with pytest.raises(ValueError, match="Invalid scaling"):
        optimizer.add_param_group({**groups[1], **given})
    assert len(optimizer.param_groups) == 1
    optimizer.add_param_group({"params": [parts[1]]})
    saved = optimizer.state_dict()
    saved["param_groups"][1]["scaling"] = other
    with pytest.raises(ValueError, match="Invalid scaling"):
        optimizer.load_state_dict(saved)
    assert {group["scaling"] for group in optimizer.param_groups} == {first}


def _ends_in_units(unit):
    """The loss after training a network one of whose parameters is counted in other units."""
    generator = torch.Generator().manual_seed(1)
    inputs, targets = (torch.randn(64, n, generator=generator) for n in (4, 1))
    units = torch.tensor([1.0, 1.0, 1.0, unit])
    weights = [(torch.ones(1) / each).requires_grad_() for each in units]
    optimizer = ESGD(weights, lr=0.1, scaling="row-column", damping=0.0)
    for _ in range(60):
        loss = (torch.tanh(inputs @ (units * torch.cat(weights))) - targets[:, 0]).square().mean()
        optimizer.probe(loss)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return loss.item()


@pytest.mark.parametrize("power", [-16, -10, 10, 16])
def test_the_units_of_a_tensor_do_not_matter(power):
    """From 2^-16 to 2^16 in float32 d is told from rounding.

    The warm-up starts from rows in which the largest unit counts most, so the first steps differ a
    little; where a tensor counted as noise the loss was off by a seventh and more.
    """
    assert _ends_in_units(2.0**power) == pytest.approx(_ends_in_units(1.0), rel=1e-3)


def test_a_tensor_without_curvature_is_told_from_one_in_other_units():
    """A bias before a normalisation: its d is rounding, and it moves by the mean of the others."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Tanh(), torch.nn.Linear(8, 1)
    )
    inputs = torch.randn(128, 6)
    optimizer = ESGD(model.parameters(), lr=0.05, scaling="row-column", damping=0.0)
    for _ in range(3):
        loss = (model(inputs) - inputs.sum(1, keepdim=True).sin()).square().mean()
        optimizer.probe(loss, backward=True)
        optimizer.step()
        optimizer.zero_grad()
    (group,), bias = optimizer.param_groups, model[0].bias
    assert 0 < optimizer.state[bias]["scale"] < noise_level(torch.float32, "row-column")
    assert damping_and_fill(group, [bias], optimizer.state)[0] == [group["mean_scale"]]
