"""Things that happen in mid-training: parameters that come and go, rows never seen, loading."""

import io
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy

import pytest
import torch
from torch import Tensor, nn

from equilibrate import ESGD, JacobiSGD, draw, frozen_statistics, loss_product
from tests.optim.loops import train, train_by_closure
from tests.optim.watching import same, unchanged

DOUBLE = torch.float64
BOTH = pytest.mark.parametrize("kind", [ESGD, JacobiSGD])
UNPROBED = "has a gradient but no probed loss depended on it"


def parameter(*values: float) -> nn.Parameter:
    return nn.Parameter(torch.tensor(values, dtype=DOUBLE))


def coupled(*parameters: Tensor) -> Tensor:
    """A loss with curvature of every sign, between parameters as well."""
    joined = torch.cat([p.reshape(-1) for p in parameters])
    return (joined**4).sum() / 4 + torch.sin(joined.sum()) + (joined[1:] * joined[:-1]).sum()


def mean_by_hand(kind, parameters: list[Tensor], vectors: list[list[Tensor]]) -> list[Tensor]:
    """The diagonal after folding these vectors with equal weight, all at the present point."""
    terms = []
    for v in vectors:
        products = loss_product(coupled(*parameters), parameters, v)
        terms.append([hv**2 if kind is ESGD else a * hv for a, hv in zip(v, products, strict=True)])
    means = [torch.stack(t).mean(0) for t in zip(*terms, strict=True)]
    return [m.sqrt() if kind is ESGD else m.abs() for m in means]


def probes(optimizer, parameter: Tensor) -> int:
    return optimizer.state[parameter]["probes"] if parameter in optimizer.state else 0


@contextmanager
def warned(text: str, times: int) -> Iterator[None]:
    """Check how often a warning with these words is given, and that no other is."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    messages = [str(w.message) for w in caught]
    assert all(text in m for m in messages), messages
    assert len(messages) == times


def due_steps(optimizer, loss: Callable[[], Tensor], steps: int) -> list[int]:
    found = []
    for step in range(steps):
        found += [step] * optimizer.probe_due
        train(optimizer, loss, 1)
    return found


@BOTH
def test_the_diagonal_of_bfloat16_parameters_survives_loading_to_the_bit(kind):
    p = nn.Parameter(torch.tensor([0.3, -1.7, 2.1], dtype=torch.bfloat16))
    optimizer = kind([p], lr=0.001, momentum=0.9, warmup_probes=7)
    train(optimizer, lambda: coupled(p.float()), 5)
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    kept = saved["state"][0]["diagonal"]
    assert kept.dtype == torch.float32
    assert not same(kept, kept.bfloat16().float()), "the case is too easy"

    loaded = kind([p], lr=0.001)
    loaded.load_state_dict(saved)
    assert same(loaded.diagonal(), optimizer.diagonal())
    assert same(loaded.state_dict(), optimizer.state_dict())


@BOTH
def test_a_loaded_state_is_a_copy(kind):
    a, b = parameter(1.0, -0.5), parameter(1.0, -0.5)
    first, second = kind([a], momentum=0.9), kind([b])
    train(first, lambda: coupled(a), 3)
    second.load_state_dict(first.state_dict())
    with unchanged(first):
        train(second, lambda: coupled(b), 25)


@BOTH
@pytest.mark.parametrize("warmup", [1, 4])
def test_a_group_added_in_mid_training_is_warmed_up_on_its_own(kind, warmup):
    a, b = parameter(1.0, -0.5), parameter(0.3, 0.7)
    optimizer = kind([a], lr=0.01, decay=None, probe_every=50, warmup_probes=6)
    train(optimizer, lambda: coupled(a), 5)
    assert not optimizer.probe_due
    older, index = optimizer.diagonal()[0], optimizer.param_groups[0]["probe_index"]

    optimizer.add_param_group({"params": [b], "warmup_probes": warmup})
    assert optimizer.probe_due
    vectors = [
        draw(optimizer.param_groups[0]["distribution"], [a, b], probe=index + k)
        for k in range(warmup)
    ]
    expected = mean_by_hand(kind, [a, b], vectors)[1]
    start = b.detach().clone()
    train(optimizer, lambda: coupled(a, b), 1)
    assert same(optimizer.diagonal()[0], older)
    torch.testing.assert_close(optimizer.diagonal()[1], expected, rtol=1e-12, atol=1e-12)
    assert [probes(optimizer, p) for p in (a, b)] == [6, warmup]
    assert not optimizer.probe_due
    assert bool((b != start).all())


@BOTH
@pytest.mark.parametrize("warmup", [1, 4])
def test_an_unfrozen_parameter_is_probed_at_once(kind, warmup):
    a, b = parameter(1.0, -0.5), parameter(0.3, 0.7)
    b.requires_grad_(False)
    optimizer = kind([a, b], lr=0.01, probe_every=50, warmup_probes=warmup)
    start = b.detach().clone()
    train(optimizer, lambda: coupled(a, b), 3)
    assert same(b, start)
    assert not optimizer.probe_due
    before, older = probes(optimizer, a), optimizer.diagonal()[0]

    b.requires_grad_(True)
    assert optimizer.probe_due
    with warned("", times=0):
        train(optimizer, lambda: coupled(a, b), 1)
    assert probes(optimizer, b) == warmup
    assert bool((b != start).all())
    assert not optimizer.probe_due
    assert probes(optimizer, a) >= before, "the older diagonal was restarted"
    assert warmup == 1 or same(optimizer.diagonal()[0], older)


@BOTH
def test_a_parameter_frozen_in_mid_training_keeps_its_place_and_its_diagonal(kind):
    a, b = parameter(1.0, -0.5), parameter(0.3, 0.7)
    optimizer = kind([a, b], lr=0.01, probe_every=3, warmup_probes=2)
    train(optimizer, lambda: coupled(a, b), 2)
    b.requires_grad_(False)
    place, kept = b.detach().clone(), optimizer.diagonal()[1]
    assert due_steps(optimizer, lambda: coupled(a, b), 8) == [1, 4, 7]
    assert same(b, place)
    assert same(optimizer.diagonal()[1], kept)
    assert probes(optimizer, a) == 5

    b.requires_grad_(True)
    assert not optimizer.probe_due, "it has a diagonal and can move at once"
    train(optimizer, lambda: coupled(a, b), 1)
    assert bool((b != place).all())


def test_a_parameter_absent_so_far_is_warmed_up_by_the_first_probed_loss_that_reaches_it():
    a, b = parameter(1.0, -0.5), parameter(0.3, 0.7)
    optimizer = ESGD([a, b], lr=0.01, probe_every=50, warmup_probes=4)
    train(optimizer, lambda: coupled(a), 1)
    assert not optimizer.probe_due
    start = b.detach().clone()
    with warned(UNPROBED, times=1):
        for _ in range(2):  # without a probe
            coupled(a, b).backward()
            optimizer.step()
            optimizer.zero_grad()
    assert same(b, start)
    assert optimizer.probe_due
    older = optimizer.diagonal()[0]
    train(optimizer, lambda: coupled(a, b), 1)
    assert probes(optimizer, b) == 4
    assert bool((b != start).all())
    assert same(optimizer.diagonal()[0], older)
    assert not optimizer.probe_due


def test_losses_that_take_turns_train_their_own_parameters():
    a, b = parameter(1.0, -0.5), parameter(0.3, 0.7)
    optimizer = ESGD([a, b], lr=0.01, probe_every=10, warmup_probes=5)
    start = [a.detach().clone(), b.detach().clone()]
    for step in range(40):
        train(optimizer, lambda own=(a, b)[step % 2]: coupled(own), 1)
    assert bool((a != start[0]).all())
    assert bool((b != start[1]).all())
    assert min(probes(optimizer, a), probes(optimizer, b)) >= 5
    assert optimizer.param_groups[0]["probe_index"] <= 5 + 5 + 4


def test_left_over_zeros_do_not_make_an_unused_parameter_due():
    a, b = parameter(1.0, -0.5), parameter(0.3, 0.7)
    optimizer = ESGD([a, b], lr=0.01, probe_every=10, warmup_probes=2)
    b.grad = torch.zeros_like(b)
    due = []
    for _ in range(9):
        loss = coupled(a)
        due.append(optimizer.probe(loss))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)
    assert due == [True] + [False] * 8


def frozen(p: nn.Parameter) -> nn.Parameter:
    return p.requires_grad_(False)


# name: the groups around `a`, the only parameter that the loss depends on; the steps due of 13
IDLE = {
    "unused in its group": (lambda a, b: [{"params": [a, b]}], [0, 5, 10]),
    "frozen in its group": (lambda a, b: [{"params": [a, frozen(b)]}], [0, 5, 10]),
    "a group unused": (lambda a, b: [{"params": [a]}, {"params": [b]}], [0, 5, 10]),
    "a group frozen": (lambda a, b: [{"params": [a]}, {"params": [frozen(b)]}], [0, 5, 10]),
    "a group frozen, more often due": (
        lambda a, b: [{"params": [a]}, {"params": [frozen(b)], "probe_every": 3}],
        [0, 5, 10],
    ),
    "a group empty": (
        lambda a, b: [{"params": [a]}, {"params": [], "probe_every": 3}],
        [0, 5, 10],
    ),
}


@pytest.mark.parametrize("warmup", [1, 2])
@pytest.mark.parametrize("loop", [train, train_by_closure], ids=["probe", "closure"])
@pytest.mark.parametrize("name", IDLE)
def test_an_idle_parameter_makes_no_step_due(name, loop, warmup):
    groups, expected = IDLE[name]
    a, b = parameter(1.0, -0.5), parameter(0.3, 0.7)
    optimizer = ESGD(groups(a, b), lr=0.01, probe_every=5, warmup_probes=warmup)
    due = []
    with warned("", times=0):
        for step in range(13):
            due += [step] * optimizer.probe_due
            loop(optimizer, lambda: coupled(a), 1)
    assert due == expected
    assert probes(optimizer, a) == warmup + 2


@pytest.mark.parametrize("warmup", [1, 2])
def test_an_unused_group_more_often_due_is_asked_no_more_often_than_it_says(warmup):
    a, b = parameter(1.0, -0.5), parameter(0.3, 0.7)
    groups = [{"params": [a]}, {"params": [b], "probe_every": 4}]
    optimizer = ESGD(groups, lr=0.01, probe_every=12, warmup_probes=warmup)
    with warned("", times=0):
        due = due_steps(optimizer, lambda: coupled(a), 24)
    assert set(due) <= set(range(0, 24, 4))


@BOTH
def test_groups_with_schedules_of_their_own_fold_their_rows_of_one_product(kind):
    a, b = parameter(1.0, -0.5), parameter(0.3, 0.7, -0.2)
    every, folded = (2, 3), ([], [])
    groups = [{"params": [p], "probe_every": k} for p, k in zip((a, b), every, strict=True)]
    optimizer = kind(groups, lr=0.0, decay=None, warmup_probes=1, distribution="gaussian")
    index = 0
    for step in range(9):
        due = [step % k == 0 for k in every]
        assert optimizer.probe_due == any(due)
        for rows, now in zip(folded, due, strict=True):
            rows += [draw("gaussian", [a, b], probe=index)] * now
        index += any(due)
        train(optimizer, lambda: coupled(a, b), 1)
    assert [probes(optimizer, p) for p in (a, b)] == [5, 3]
    expected = [mean_by_hand(kind, [a, b], rows)[i] for i, rows in enumerate(folded)]
    torch.testing.assert_close(optimizer.diagonal(), expected, rtol=1e-12, atol=1e-12)


def embedding_step(kind, **damping) -> tuple[float, Tensor, Tensor, Tensor]:
    """Measure on rows 0 and 1, then step on row 2: share unseen, its gradient, its step, D."""
    table = nn.Embedding(5, 3, dtype=DOUBLE)
    with torch.no_grad():
        table.weight.copy_(torch.linspace(0.5, 1.5, 15, dtype=DOUBLE).view(5, 3))
    optimizer = kind(table.parameters(), lr=0.01, warmup_probes=3, **damping)

    def loss(rows: list[int]) -> Tensor:
        return coupled(table(torch.tensor(rows)))

    train(optimizer, lambda: loss([0, 1]), 1)
    before, diagonal = table.weight.detach().clone(), optimizer.diagonal()[0]
    loss([2]).backward()
    gradient = table.weight.grad[2].clone()
    optimizer.step()
    moved = table.weight.detach() - before
    assert not moved[[0, 1, 3, 4]].any()
    return optimizer.unseen_share(), gradient, moved[2], diagonal


@BOTH
def test_an_unseen_row_moves_as_its_tensors_mean_diagonal_says(kind):
    share, gradient, moved, diagonal = embedding_step(kind, damping=0.1, damping_kind="relative")
    assert share == 9 / 15
    mean = diagonal[:2].mean()
    torch.testing.assert_close(moved, -0.01 * gradient / (mean + 0.1 * mean))


@BOTH
def test_an_unseen_row_moves_by_damping_alone_as_the_paper_says(kind):
    share, gradient, moved, _ = embedding_step(kind, damping=0.2, damping_kind="absolute")
    assert share == 9 / 15
    torch.testing.assert_close(moved, -0.01 * gradient / 0.2)


@pytest.mark.parametrize("foreach", [True, False])
def test_a_tensor_wholly_unseen_takes_the_mean_of_all(foreach):
    linear, small, large = parameter(0.0), parameter(1.0, 1.0), parameter(1.0)
    optimizer = ESGD([linear, small, large], lr=0.1, damping=0.5, warmup_probes=1, foreach=foreach)

    def loss() -> Tensor:
        return 7 * linear.sum() + (small**2).sum() + 5 * (large**2).sum()

    train(optimizer, loss, 1)
    assert optimizer.unseen_share() == 1 / 4
    mean = (2 + 2 + 10) / 3
    torch.testing.assert_close(linear, parameter(-0.1 * 7 / (1.5 * mean)))


def test_unseen_share_counts_what_was_never_probed():
    a, b = parameter(1.0, -0.5), parameter(0.3, 0.7, 0.1)
    optimizer = ESGD([a, frozen(b)])
    assert optimizer.unseen_share() == 1
    train(optimizer, lambda: coupled(a, b), 1)
    assert optimizer.unseen_share() == 3 / 5


@pytest.mark.parametrize("warmup", [1, 3])
def test_frozen_statistics_leave_one_ordinary_pass_per_step(warmup):
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 1)).double()
    optimizer = ESGD(model.parameters(), lr=0.01, probe_every=2, warmup_probes=warmup)
    for turn in range(5):
        x = torch.randn(6, 3, dtype=DOUBLE, generator=torch.Generator().manual_seed(turn))
        ordinary = deepcopy(model)
        ordinary(x)

        def closure(x: Tensor = x) -> Tensor:
            optimizer.zero_grad()
            with frozen_statistics(model, optimizer):
                loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
            loss.backward()
            return loss

        optimizer.step(closure)
        assert same(list(model.buffers()), list(ordinary.buffers()))
    assert int(model[1].num_batches_tracked) == 5
    assert probes(optimizer, model[0].weight) == warmup + 2
