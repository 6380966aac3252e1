"""Row-and-column equilibration online: what it settles at, what it divides by, how it goes on."""

import io

import pytest
import torch

from equilibrate.curvature import draw
from equilibrate.paper.robustness_points import METHODS
from equilibrate.paper.row_column_sgd import RowColumnSGD
from equilibrate.study.alone import Alone
from tests.study.stacks import CPU, dense, trials


def matrix_of(size=8, seed=0):
    """A badly scaled indefinite symmetric matrix."""
    generator = torch.Generator().manual_seed(seed)
    entries = torch.randn(size, size, generator=generator, dtype=torch.float64)
    scale = 10 ** torch.linspace(-1, 1, size, dtype=torch.float64)
    return scale.unsqueeze(1) * (entries + entries.T) * scale


def measured(matrix, probes, factor=1.0, **settings):
    """The optimizer after measuring a quadratic often, without moving."""
    x = torch.ones(len(matrix), dtype=torch.float64, requires_grad=True)
    optimizer = RowColumnSGD([x], lr=0.0, **{"damping": 0.0, "probe_every": 1, **settings})
    for _ in range(probes):
        loss = factor * x @ matrix @ x / 2
        optimizer.probe(loss)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return optimizer, x


@pytest.mark.parametrize("distribution", ["gaussian", "rademacher"])
@pytest.mark.parametrize("seed", range(2))
def test_the_scaled_hessian_has_unit_rows(distribution, seed):
    matrix = matrix_of(seed=seed)
    optimizer, _ = measured(matrix, 1000, decay=None, distribution=distribution)
    (d,) = optimizer.diagonal()
    norms = (matrix / d.outer(d).sqrt()).norm(dim=1)
    # A square of a normal has relative variance 2, its mean over k 2/k, the norm half the error:
    # 1/sqrt(2k) = 0.022, times 2 at most for what d owes to the other entries of d; 4 deviations.
    assert (norms - 1).abs().max() < 4 * 2 / (2 * 1000) ** 0.5


def test_a_step_is_the_gradient_over_d():
    matrix = matrix_of()
    optimizer, x = measured(matrix, 50)
    before, (d,) = x.detach().clone(), optimizer.diagonal()
    optimizer.param_groups[0]["lr"] = 0.5
    optimizer.step()
    torch.testing.assert_close(x.detach(), before - 0.5 * x.grad / d)


@pytest.mark.parametrize("damping", [0.0, 0.01])
def test_scaling_the_loss_scales_d_alike(damping):
    # A power of two rounds nothing; the first round's square is gone after the second.
    plain, scaled = (
        measured(matrix_of(), 30, factor, damping=damping)[0].diagonal()[0]
        for factor in (1.0, 64.0)
    )
    torch.testing.assert_close(scaled, 64 * plain)


def test_a_parameter_without_curvature_does_not_disturb_the_others():
    matrix = matrix_of()
    matrix[2], matrix[:, 2] = 0.0, 0.0
    optimizer, x = measured(matrix, 50)
    (d,) = optimizer.diagonal()
    assert d[2] == 0
    assert (d[torch.arange(8) != 2] > 0).all()
    optimizer.param_groups[0]["lr"] = 0.5
    optimizer.step()
    assert x.isfinite().all()


@pytest.mark.parametrize("decay", [None, 0.9])
@pytest.mark.parametrize("every", [1, 3])
def test_a_probe_enters_with_the_weight_of_what_is_remembered(decay, every):
    matrix = matrix_of()
    optimizer, x = measured(matrix, 1 + 2 * every, decay=decay, probe_every=every)
    (before,), group = optimizer.diagonal(), optimizer.param_groups[0]
    (vector,) = draw(group["distribution"], [x], seed=group["seed"], probe=group["probe_index"])
    kept = 1.0 if decay is None else decay**every
    # After the warm-up of 20, two probes; now the third.
    weight = ((20 * kept + 1) * kept + 1) * kept + 1
    optimizer.param_groups[0]["steps_since_probe"] = every
    optimizer.probe(x @ matrix @ x / 2)
    square = (matrix @ (vector / before.sqrt())).square()
    torch.testing.assert_close(optimizer.diagonal()[0], before + (square - before) / weight)


def test_nothing_is_measured_between_two_probes():
    optimizer, x = measured(matrix_of(), 1, probe_every=3)
    drawn = optimizer.param_groups[0]["probe_index"]
    optimizer.probe(x.square().sum())
    assert optimizer.param_groups[0]["probe_index"] == drawn == 20 * 6


def test_a_product_that_is_not_finite_is_dropped():
    optimizer, x = measured(matrix_of(), 5)
    (before,) = optimizer.diagonal()
    optimizer.probe((x * float("inf")).square().sum())
    assert torch.equal(optimizer.diagonal()[0], before)


def trainer(epochs=10):
    (trial,) = trials("row-column", [{"lr": 0.03, "warmup_probes": 4}], epochs=epochs)
    return Alone(dense(), METHODS["row-column"], [trial], CPU)


def test_it_trains_alone_and_goes_on_from_a_checkpoint_to_the_last_bit():
    whole, first, second = trainer(), trainer(), trainer()
    start = whole.errors()[0]
    whole.advance(47)
    first.advance(23)  # between two probes
    buffer = io.BytesIO()
    torch.save(first.state_dict(), buffer)
    buffer.seek(0)
    second.load_state_dict(torch.load(buffer, weights_only=True))
    second.advance(24)
    assert second.errors() == whole.errors()
    assert whole.errors()[0] < start


def test_more_than_one_group_is_refused():
    groups = [{"params": [torch.ones(1, requires_grad=True)]} for _ in range(2)]
    with pytest.raises(ValueError, match="one group"):
        RowColumnSGD(groups)
