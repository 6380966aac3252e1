"""The decided semantics, one by one: when a probe is due, what it folds, what survives."""

import copy
import math
import warnings

import pytest
import torch
from torch import nn

from equilibrate import ALGORITHM_1, ESGD, JacobiSGD, draw, exact, hessian, loss_product
from equilibrate.exact import equilibration
from equilibrate.rules import reference
from tests.cases import NETWORK, SADDLE
from tests.optim.loops import train, train_by_closure

BOTH = pytest.mark.parametrize("optimizer_class", [ESGD, JacobiSGD])


def _flat(tensors):
    return torch.cat([t.reshape(-1) for t in tensors])


# ---------------------------------------------------------------- 2. warm-up


@BOTH
def test_warm_up_draws_its_vectors_on_the_first_loss_alone(optimizer_class):
    parameters, loss = NETWORK.parameters_and_loss()
    optimizer = optimizer_class(parameters, warmup_probes=7)
    assert optimizer.probe(loss())
    assert not optimizer._pending  # each product was folded at once: constant memory
    assert {optimizer.state[p]["probes"] for p in parameters} == {7}
    assert optimizer.probe(3 * loss()) == (optimizer_class is ESGD)  # only tells how much more
    assert {optimizer.state[p]["probes"] for p in parameters} == {7}
    products = [
        loss_product(loss(), parameters, draw("rademacher", parameters, probe=k)) for k in range(7)
    ]
    if optimizer_class is ESGD:
        mean = sum(_flat(hv).square() for hv in products) / 7
        torch.testing.assert_close(_flat(optimizer.diagonal()), mean.sqrt())


def test_why_one_warm_up_vector_fails():
    """E[1/D] is infinite at k = 1 and sqrt(k/2) Gamma((k-1)/2)/Gamma(k/2) from k = 2 on.

    So the mean first step of a coordinate is unbounded with one normal vector, and within a few
    percent of right with twenty: the sample mean of 1/D shows both.
    """
    x = torch.randn(200_000, 20, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    steps = 1 / x[:, :1].square().mean(1).sqrt(), 1 / x.square().mean(1).sqrt()
    k = 20
    predicted = math.sqrt(k / 2) * math.exp(math.lgamma((k - 1) / 2) - math.lgamma(k / 2))
    assert steps[1].mean() == pytest.approx(predicted, rel=5 * 0.17 / math.sqrt(200_000))
    assert predicted < 1.05
    assert steps[0].max() > 1e4 > 5 > steps[1].max()


# ---------------------------------------------------------------- 3. due


@BOTH
def test_due_counts_steps_since_the_last_probe(optimizer_class):
    parameters, loss = SADDLE.parameters_and_loss()
    optimizer = optimizer_class(parameters, lr=1e-4, probe_every=3, warmup_probes=2)
    pattern = []
    for _ in range(10):
        value = loss()
        pattern.append(optimizer.probe(value))
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert pattern == [True, False, False] * 3 + [True]


def test_a_forgotten_probe_stays_due_and_warns_once():
    parameters, loss = SADDLE.parameters_and_loss()
    optimizer = ESGD(parameters, lr=1e-4, probe_every=2)
    train(optimizer, loss, 2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(4):
            loss().backward()
            optimizer.step()
    assert [str(w.message)[:14] for w in caught] == ["A probe is due"]
    assert optimizer.probe_due
    assert optimizer.probe(loss())
    loss().backward()
    optimizer.step()
    assert not optimizer.probe_due


def test_step_before_any_probe_raises():
    parameters, loss = SADDLE.parameters_and_loss()
    loss().backward()
    with pytest.raises(RuntimeError, match=r"optimizer\.probe\(loss\).*step\(closure\)"):
        ESGD(parameters).step()


# ---------------------------------------------------------------- 5, 6. state


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_one_tensor_per_parameter_two_with_momentum(dtype):
    for momentum, count in ((0.0, 1), (0.9, 2)):
        weight = torch.ones(50, dtype=dtype, requires_grad=True)
        optimizer = ESGD([weight], lr=1e-3, momentum=momentum)
        train(optimizer, lambda w=weight: (w.float() ** 4).sum(), 3)
        tensors = [v for v in optimizer.state[weight].values() if isinstance(v, torch.Tensor)]
        assert sum(t.numel() > 1 for t in tensors) == count
        assert all(t.dtype == torch.float32 for t in tensors)


def test_what_is_not_saved():
    parameters, loss = SADDLE.parameters_and_loss()
    optimizer = ESGD(parameters, warmup_probes=1, process_group=False)
    optimizer.probe(loss())
    saved = optimizer.state_dict()
    assert not any("process_group" in group for group in saved["param_groups"])
    optimizer.load_state_dict(saved)
    assert optimizer._process_group is False
    assert not optimizer._pending
    assert copy.deepcopy(optimizer).probe_due


@BOTH
def test_changing_probe_every_leaves_the_memory_in_steps(optimizer_class):
    """In the steady state a curvature last seen t steps ago has the share decay^t."""
    decay, wait = 0.97, 60
    shares = []
    for probe_every in (1, 3, 20):
        weight = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)
        optimizer = optimizer_class([weight], lr=0.0, decay=decay, probe_every=probe_every)
        train(optimizer, lambda w=weight: w.square().sum(), 1200)
        before = optimizer.diagonal()[0].clone()
        train(optimizer, lambda w=weight: (0 * w.square() + w).sum(), wait + 1)
        power = 2 if optimizer_class is ESGD else 1
        shares.append(float((optimizer.diagonal()[0] / before) ** power))
    # It was last seen at the last probe of the first 1200 steps: probe_every before their end.
    assert shares == pytest.approx([decay ** (wait + n) for n in (1, 3, 20)], rel=1e-6)


# ---------------------------------------------------------------- 7, 13. the step


def test_an_unseen_coordinate_moves_by_its_tensors_mean_diagonal():
    weight = torch.ones(4, dtype=torch.float64, requires_grad=True)

    def loss():  # curvature 2, 4, none, none; gradient 2, 4, 1, 0
        return weight[0].square() + 2 * weight[1].square() + weight[2]

    optimizer = ESGD([weight], lr=1.0, damping=0.1, warmup_probes=5)
    train(optimizer, loss, 1)
    moved = 1 - weight.detach()
    mean = 3.0
    expected = [2 / (2 + 0.3), 4 / (4 + 0.3), 1 / (mean + 0.3), 0.0]
    torch.testing.assert_close(moved, torch.tensor(expected, dtype=torch.float64))
    assert optimizer.unseen_share() == 0.5


def test_the_papers_letter_keeps_g_over_damping_and_zero_over_zero_is_zero():
    weight = torch.ones(2, dtype=torch.float64, requires_grad=True)
    train(ESGD([weight], lr=0.01, **ALGORITHM_1), lambda: weight[0], 1)
    assert weight.tolist() == pytest.approx([1 - 0.01 / 1e-4, 1.0])
    weight = torch.ones(2, dtype=torch.float64, requires_grad=True)
    undamped = ALGORITHM_1 | {"damping": 0.0}
    train(ESGD([weight], lr=0.01, **undamped), lambda: weight[0].square(), 1)
    assert weight[1] == 1.0
    assert weight[0] != 1.0


@pytest.mark.parametrize("nesterov", [False, True])
def test_momentum_averages_preconditioned_gradients(nesterov):
    """buf = m buf + g/(D + damping), the learning rate outside; written out for a parabola."""
    weight = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)
    optimizer = ESGD([weight], lr=0.1, damping=0.5, momentum=0.8, nesterov=nesterov)
    train(optimizer, lambda: 2 * weight.square().sum(), 6)
    theta, buffer = 1.0, 0.0
    for _ in range(6):
        u = 4 * theta / (4 + 0.5 * 4)
        buffer = 0.8 * buffer + u
        theta -= 0.1 * (u + 0.8 * buffer if nesterov else buffer)
    assert float(weight.detach()) == pytest.approx(theta, rel=1e-12)


@BOTH
def test_no_element_moves_further_than_the_limit_and_the_others_move_as_without(optimizer_class):
    limit, lr = 0.05, 0.1
    plain, limited = (NETWORK.parameters_and_loss() for _ in range(2))
    start = [p.detach().clone() for p in plain[0]]
    train(optimizer_class(plain[0], lr=lr), plain[1], 1)
    train(optimizer_class(limited[0], lr=lr, update_limit=limit), limited[1], 1)
    moved = [torch.cat([(p - s).flatten() for p, s in zip(ps, start, strict=True)])
             for ps in (plain[0], limited[0])]  # fmt: skip
    assert bool((moved[0].abs() > lr * limit).any())
    torch.testing.assert_close(moved[1], moved[0].clamp(-lr * limit, lr * limit))


def test_on_a_quadratic_no_update_exceeds_the_distance_to_the_minimum():
    """Why a limit is a limit: |g_i| = |H_i (theta - theta*)| <= D_i |theta - theta*|."""
    generator = torch.Generator().manual_seed(0)
    for _ in range(50):
        matrix = torch.randn(6, 6, generator=generator, dtype=torch.float64)
        matrix = matrix + matrix.T
        away = torch.randn(6, generator=generator, dtype=torch.float64)
        update = (matrix @ away) / equilibration(matrix)
        assert float(update.abs().max()) <= float(away.norm()) * (1 + 1e-12)


@BOTH
def test_weight_decay_is_decoupled_and_not_preconditioned(optimizer_class):
    plain, decayed = (NETWORK.parameters_and_loss() for _ in range(2))
    start = [p.detach().clone() for p in plain[0]]
    train(optimizer_class(plain[0], lr=0.01), plain[1], 1)
    train(optimizer_class(decayed[0], lr=0.01, weight_decay=0.3), decayed[1], 1)
    for p, d, s in zip(plain[0], decayed[0], start, strict=True):
        torch.testing.assert_close(p - d, 0.01 * 0.3 * s)


def test_rescaling_coordinates_on_the_exact_diagonal():
    """Jacobi is unmoved by any diagonal rescaling, equilibration only by a uniform one.

    With theta' = S theta: H' = S^-1 H S^-1, g' = S^-1 g, and the step in old units is S^-1 step'.
    """
    parameters, loss = NETWORK.parameters_and_loss()
    matrix = hessian(loss(), parameters)
    gradient = _flat(torch.autograd.grad(loss(), parameters))
    generator = torch.Generator().manual_seed(0)
    uneven = torch.exp(torch.randn(len(gradient), dtype=torch.float64, generator=generator))
    uniform = torch.full_like(uneven, 3.0)

    def step(diagonal, scales):
        h = matrix / scales[:, None] / scales
        theta = torch.zeros_like(gradient)
        reference.step(
            [theta], [gradient / scales], [diagonal(h)], None, lr=1.0, damping=[0.0], fill=[0.0],
            momentum=0.0, nesterov=False, weight_decay=0.0, maximize=False,
        )  # fmt: skip
        return theta / scales

    ones = torch.ones_like(uneven)
    torch.testing.assert_close(step(exact.jacobi, uneven), step(exact.jacobi, ones))
    torch.testing.assert_close(step(exact.equilibration, uniform), step(exact.equilibration, ones))
    moved = step(exact.equilibration, uneven) - step(exact.equilibration, ones)
    assert moved.norm() > 0.1 * step(exact.equilibration, ones).norm()


# ---------------------------------------------------------------- 8. not finite


def test_a_product_that_is_not_finite_is_dropped_whole():
    parameters, loss = NETWORK.parameters_and_loss()
    optimizer = ESGD(parameters, lr=1e-3, probe_every=1, warmup_probes=1)
    train(optimizer, loss, 3)
    before = [d.clone() for d in optimizer.diagonal()]
    # One element's curvature is infinite, the gradient of everything stays finite.
    spoiled = loss() + torch.sqrt(parameters[1][0] - parameters[1][0].detach()) * 0
    optimizer.probe(spoiled)
    loss().backward()
    with pytest.warns(UserWarning, match="not finite and was dropped") as caught:
        optimizer.step()
    assert len(caught) == 1
    torch.testing.assert_close(optimizer.diagonal(), before, rtol=0, atol=0)
    assert {optimizer.state[p]["probes"] for p in parameters} == {3}
    assert optimizer.param_groups[0]["dropped_probes"] == 1
    assert optimizer.probe_due  # it is tried again at the next step


# ---------------------------------------------------------------- 12. checkpoints


def test_a_step_that_moves_nothing_allocates_state():
    from torch.distributed.checkpoint.state_dict import get_optimizer_state_dict

    model = nn.Linear(3, 2)
    optimizer = ESGD(model.parameters(), momentum=0.9)
    found = get_optimizer_state_dict(model, optimizer)
    assert set(found["state"]) == {"weight", "bias"}
    assert found["state"]["weight"]["diagonal"].shape == (2, 3)
    assert optimizer.probe_due
    assert optimizer.param_groups[0]["lr"] != 0
    data = torch.rand(5, 3)
    losses = train(optimizer, lambda: (model(data) - 1).square().mean(), 30)
    assert losses[-1] < losses[0]


# ---------------------------------------------------------------- observe, calibrate


@BOTH
def test_observe_is_the_seam_below_probe(optimizer_class):
    settings = {"warmup_probes": 1, "probe_every": 1}
    probed, observed = (NETWORK.parameters_and_loss() for _ in range(2))
    train(optimizer_class(probed[0], **settings), probed[1], 5)
    optimizer = optimizer_class(observed[0], **settings)
    for k in range(5):
        value = observed[1]()
        vectors = draw("rademacher", observed[0], probe=k)
        for _ in range(2):  # two micro-batches, half each
            products = loss_product(value / 2, observed[0], vectors)
            optimizer.observe(vectors, products)
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
    torch.testing.assert_close(observed[0], probed[0], rtol=1e-12, atol=1e-14)


@BOTH
def test_calibrate_probes_without_steps(optimizer_class):
    parameters, loss = NETWORK.parameters_and_loss()
    optimizer = optimizer_class(parameters, decay=None)
    start = [p.detach().clone() for p in parameters]
    assert optimizer.calibrate(loss() for _ in range(6)) == 6
    torch.testing.assert_close([p.detach() for p in parameters], start, rtol=0, atol=0)
    assert not optimizer.probe_due
    warmed = optimizer_class(parameters, decay=None, warmup_probes=6)
    warmed.probe(loss())
    torch.testing.assert_close(optimizer.diagonal(), warmed.diagonal(), rtol=1e-12, atol=1e-14)


def test_an_iteration_given_up_leaves_nothing_pending():
    parameters, loss = NETWORK.parameters_and_loss()
    optimizer = ESGD(parameters, warmup_probes=1)
    value = loss()
    optimizer.probe(value)
    optimizer.zero_grad()  # before the backward: some trainers do this
    assert optimizer._pending
    value.backward()
    optimizer.zero_grad()  # after it: the iteration is given up
    assert not optimizer._pending
    optimizer.probe(loss())
    loss().backward()
    start = NETWORK.parameters_and_loss()
    optimizer.step()
    product = loss_product(start[1](), start[0], draw("rademacher", start[0], probe=0))
    torch.testing.assert_close(optimizer.diagonal(), [hv.abs() for hv in product])


def test_closures_measure_and_train_like_probes():
    probed, closed = (NETWORK.parameters_and_loss() for _ in range(2))
    train(ESGD(probed[0], lr=0.02, probe_every=3), probed[1], 30)
    train_by_closure(ESGD(closed[0], lr=0.02, probe_every=3), closed[1], 30)
    torch.testing.assert_close(closed[0], probed[0], rtol=0, atol=1e-6)
