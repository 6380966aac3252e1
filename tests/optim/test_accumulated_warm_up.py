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
    "more than n times": (CURVATURE[0] * torch.tensor([[1.0], [9.0], [9.0]]), 19.0),
    "far more": (CURVATURE[0] * torch.tensor([[1e-3], [5.0], [5.0]]), 10001.0),
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
        assert optimizer._besides
        optimizer.zero_grad()
        assert not optimizer._besides
    loss = (CURVATURE[0] * weight**2).sum() / 2
    optimizer.probe(loss)
    loss.backward()
    optimizer.step()
    assert not optimizer._besides
    torch.testing.assert_close(optimizer.diagonal()[0], CURVATURE[0])


def _noisy(groups, parts=16, **options):
    """Return the mean diagonal of both layers of a network after a first step of many parts."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.Tanh(), nn.Linear(32, 3)).double()
    data, target = torch.randn(64, 16, dtype=torch.float64), torch.randint(3, (64,))
    body, head = (list(model[i].parameters()) for i in (0, 2))
    own = zip((body, head), groups, strict=True)
    optimizer = ESGD([{"params": p, **group} for p, group in own], lr=0.0, **options)
    for x, y in zip(data.chunk(parts), target.chunk(parts), strict=True):
        loss = nn.functional.cross_entropy(model(x), y) / parts
        optimizer.probe(loss)
        loss.backward()
    optimizer.step()
    return torch.stack([optimizer.state[p]["diagonal"].mean() for p in (body[0], head[0])])


@pytest.mark.parametrize("head", [{"warmup_probes": 5}, {"warmup_probes": 1}, {"probe_every": 1}])
def test_groups_of_other_warm_ups_are_scaled_too(head):
    whole, parts = _noisy([{}, {}], parts=1), _noisy([{}, head])
    assert ((parts / whole > 0.5) & (parts / whole < 1.6)).all()  # 3 to 4 if counted 16 times


NAN = float("nan")


@pytest.mark.filterwarnings("ignore:A curvature product was not finite")
@pytest.mark.parametrize("bad", [2, 3])
def test_a_product_that_is_not_finite_is_left_out_whole(bad):
    """The second is that of the first loss's last vector, the third that of a later loss."""
    alike, fading = (torch.ones(4, requires_grad=True) for _ in range(2))
    optimizer = ESGD([alike, fading], lr=0.0, warmup_probes=2)
    taken = 0
    contributions = type(optimizer)._contributions

    def spoiled(self, hessian, asked, index=None):
        nonlocal taken
        found = contributions(self, hessian, asked, index)
        taken += 1
        return {p: c * NAN if taken == bad and p is alike else c for p, c in found.items()}

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(optimizer), "_contributions", spoiled)
        for curvature in (1.0, 0.0, 0.0):
            loss = (alike**2).sum() / 2 + curvature * (fading**2).sum() / 2
            optimizer.probe(loss)
            loss.backward()
        optimizer.step()
    assert taken == (2 if bad == 2 else 4)
    for diagonal in optimizer.diagonal():
        torch.testing.assert_close(diagonal, torch.full((4,), 3.0))


def test_what_is_frozen_in_between_is_asked_for_no_more():
    """A generator and its critic under one optimizer, frozen in turn, twice a step."""
    generator, critic = nn.Linear(2, 3).double(), nn.Linear(3, 1).double()
    optimizer = ESGD([*generator.parameters(), *critic.parameters()], lr=1e-3)
    noise = torch.randn(8, 2, dtype=torch.float64)
    for _ in range(2):
        for frozen, trained in ((critic, generator), (generator, critic)) * 2:
            frozen.requires_grad_(False)
            trained.requires_grad_(True)
            loss = critic(generator(noise).tanh()).square().mean()
            optimizer.probe(loss)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert all(optimizer.state[p]["probes"] >= 20 for p in generator.parameters())


def test_what_joins_in_a_step_that_is_due_is_not_counted_twice():
    means = []
    for n in (1, 8):
        torch.manual_seed(0)
        body, head = nn.Linear(4, 6).double(), nn.Linear(6, 1).double()
        data, target = (torch.randn(16, k, dtype=torch.float64) for k in (4, 1))
        optimizer = ESGD([*body.parameters(), *head.parameters()], lr=0.0, probe_every=1)
        body.requires_grad_(False)
        for step in range(2):
            body.requires_grad_(step == 1)
            for _ in range(n):
                loss = (head(body(data).tanh()) - target).square().mean() / n
                optimizer.probe(loss)
                loss.backward()
            optimizer.step()
            optimizer.zero_grad()
        means.append(torch.cat([d.flatten() for d in optimizer.diagonal()]))
    torch.testing.assert_close(means[1], means[0], rtol=1e-6, atol=0)
