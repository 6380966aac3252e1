"""The warm-up sees the first micro-batch; one product of each tells how much more the whole is."""

import pytest
import torch
from torch import nn

from equilibrate import ESGD, JacobiSGD

# Curvature by micro-batch, of four elements: alike, in the first alone, not in the first, of both
# signs. Vectors of signs measure such a diagonal exactly.
CURVATURE = torch.tensor(
    [[1.0, 1.0, 0.0, 1.0], [1.0, 0.0, 1.0, -1.0], [1.0, 0.0, 1.0, 1.0], [1.0, 0.0, 1.0, 0.0]]
)
WHOLE = CURVATURE.sum(0).abs()


def _steps(count: int, curvatures=CURVATURE, kind=ESGD, **options) -> torch.Tensor:
    """Return the diagonal after steps of several micro-batches each, all of which are probed."""
    weight = torch.ones(4, requires_grad=True)
    optimizer = kind([weight], lr=0.0, probe_every=1, **options)
    for _ in range(count):
        for curvature in curvatures:
            loss = (curvature * weight**2).sum() / 2
            optimizer.probe(loss)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return optimizer.diagonal()[0]


# name: what micro-batches curve, and how many times larger than the first they are together
TOGETHER = {
    "of one tensor": (CURVATURE, (WHOLE.square().sum() / 3) ** 0.5),
    "alike": (CURVATURE[:1].expand(4, 4), 4.0),
    "more than n times": (CURVATURE[0] * torch.tensor([[1.0], [9.0], [9.0]]), 3.0),
    "against each other": (CURVATURE[0] * torch.tensor([[1.0], [-1.0], [1.0], [-1.0]]), 2.0),
    "nothing in the first": (CURVATURE * torch.tensor([[0.0], [1.0], [1.0], [1.0]]), 4.0),
}


@pytest.mark.parametrize("name", TOGETHER)
def test_the_first_micro_batch_is_counted_as_often_as_one_product_tells(name):
    curvatures, times = TOGETHER[name]
    torch.testing.assert_close(_steps(1, curvatures), times * curvatures[0].abs())


def test_jacobis_products_add_up():
    torch.testing.assert_close(_steps(1, kind=JacobiSGD), 4 * CURVATURE[0].abs())


def test_without_a_warm_up_it_is_the_whole_from_the_first_step_on():
    torch.testing.assert_close(_steps(1, warmup_probes=1), WHOLE)


@pytest.mark.parametrize("later", [20, 100])
def test_later_probes_measure_the_whole(later):
    """D^2 is the mean over the 20 vectors of the warm-up and those that came later."""
    mean = 20 * _steps(1).square() + later * WHOLE.square()
    torch.testing.assert_close(_steps(later + 1, decay=None), (mean / (20 + later)).sqrt())


@pytest.mark.parametrize("parts", [2, 4, 16])
@pytest.mark.parametrize("backward", [False, True])
def test_parts_of_a_batch_start_with_about_its_diagonal(parts, backward):
    """A part's curvature is that of the batch and noise, which n times the first would keep."""
    means = []
    for n in (1, parts):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 3)).double()
        data, target = torch.randn(64, 16, dtype=torch.float64), torch.randint(3, (64,))
        optimizer = ESGD(model.parameters(), lr=0.0)
        for x, y in zip(data.chunk(n), target.chunk(n), strict=True):
            loss = nn.functional.cross_entropy(model(x), y) / n
            assert optimizer.probe(loss, backward=backward)
            if not backward:
                loss.backward()
        optimizer.step()
        means.append(torch.cat([d.flatten() for d in optimizer.diagonal()]).mean())
    assert 0.8 < means[1] / means[0] < 1.25


def test_an_iteration_given_up_forgets_it():
    weight = torch.ones(4, requires_grad=True)
    optimizer = ESGD([weight], lr=0.0)
    for _ in range(2):
        for curvature in CURVATURE[:2]:
            loss = (curvature * weight**2).sum() / 2
            optimizer.probe(loss)
            loss.backward()
        assert optimizer._beside is not None
        optimizer.zero_grad()
        assert optimizer._beside is None
    loss = (CURVATURE[0] * weight**2).sum() / 2
    optimizer.probe(loss)
    loss.backward()
    optimizer.step()
    assert optimizer._beside is None
    torch.testing.assert_close(optimizer.diagonal()[0], CURVATURE[0])
