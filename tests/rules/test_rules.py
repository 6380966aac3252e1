"""Every version of the update is the reference on any tensors; the reference is the formula."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from equilibrate import JacobiSGD, exact
from equilibrate.diagonals import squared_gradient
from equilibrate.diagonals.averaging import next_weight
from equilibrate.rules import foreach, reference, stacked
from tests.optim.loops import train

SHAPES = [(), (0,), (5,), (3, 4), (2, 1, 3)]


@st.composite
def updates(draw):
    dtype = draw(st.sampled_from([torch.float64, torch.float32, torch.bfloat16]))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    shapes = draw(st.lists(st.sampled_from(SHAPES), min_size=1, max_size=3))

    def tensors(kind):
        return [torch.randn(s, dtype=torch.float64, generator=generator).to(kind) for s in shapes]

    wide = torch.promote_types(dtype, torch.float32)
    diagonals = [d.abs() * (d > -0.5) for d in tensors(wide)]  # some are zero
    momentum = draw(st.sampled_from([0.0, 0.9]))
    options = {
        "lr": draw(st.sampled_from([0.0, 0.1])),
        "damping": [draw(st.sampled_from([0.0, 0.3])) for _ in shapes],
        "fill": [draw(st.sampled_from([0.0, 0.7])) for _ in shapes],
        "momentum": momentum,
        "nesterov": momentum > 0 and draw(st.booleans()),
        "weight_decay": draw(st.sampled_from([0.0, 0.2])),
        "maximize": draw(st.booleans()),
        "update_limit": draw(st.sampled_from([None, 0.5])),
        "scale": draw(st.sampled_from([None, 0.37, torch.tensor(0.37, dtype=torch.float64)])),
    }
    buffers = tensors(wide) if momentum else None
    return tensors(dtype), tensors(dtype), diagonals, buffers, options


@given(updates())
def test_foreach_is_the_reference(update):
    parameters, gradients, diagonals, buffers, options = update
    moved = []
    for rule in (reference, foreach):
        own = [p.clone() for p in parameters]
        kept = None if buffers is None else [b.clone() for b in buffers]
        rule.step(own, [g.clone() for g in gradients], diagonals, kept, **options)
        moved.append(own + (kept or []))
    for one, other in zip(*moved, strict=True):
        torch.testing.assert_close(one, other)
        assert bool(one.isfinite().all())


@st.composite
def stacked_updates(draw):
    """One tensor of several trials, each with numbers of its own."""
    trials = draw(st.integers(1, 4))
    generator = torch.Generator().manual_seed(draw(st.integers(0, 99)))
    shape = (trials, *draw(st.sampled_from([(5,), (3, 4), (2, 1, 3)])))
    parameter, gradient, diagonal, buffer = (
        torch.randn(shape, dtype=torch.float64, generator=generator) for _ in range(4)
    )
    has_momentum = draw(st.booleans())
    choices = {"lr": [0.0, 0.1], "damping": [0.0, 0.3], "fill": [0.0, 0.7]}
    choices |= {"momentum": [0.5, 0.9], "weight_decay": [0.0, 0.2], "update_limit": [0.5, math.inf]}
    choices |= {"scale": [0.37, 1.0]}
    numbers = {
        name: draw(st.lists(st.sampled_from(values), min_size=trials, max_size=trials))
        for name, values in choices.items()
    }
    switches = {"nesterov": has_momentum and draw(st.booleans()), "maximize": draw(st.booleans())}
    diagonal = diagonal.abs() * (diagonal > -0.5)  # some are zero
    return parameter, gradient, diagonal, buffer if has_momentum else None, numbers, switches


@given(stacked_updates())
def test_stacked_is_the_reference_trial_by_trial(update):
    parameter, gradient, diagonal, buffer, numbers, switches = update
    own, kept = parameter.clone(), None if buffer is None else buffer.clone()
    wide = (-1, *[1] * (parameter.dim() - 1))
    tensors = {k: torch.tensor(v, dtype=torch.float64).view(wide) for k, v in numbers.items()}
    if not any(numbers["weight_decay"]):
        tensors["weight_decay"] = None
    stacked.step_(own, gradient, diagonal, kept, **tensors, **switches)
    for row in range(len(parameter)):
        alone, buffers = parameter[row].clone(), None if buffer is None else [buffer[row].clone()]
        settings = {name: values[row] for name, values in numbers.items()}
        settings |= {name: [settings[name]] for name in ("damping", "fill")}
        settings["momentum"] *= buffer is not None
        reference.step([alone], [gradient[row]], [diagonal[row]], buffers, **settings, **switches)
        torch.testing.assert_close(own[row], alone, rtol=1e-13, atol=1e-15)
        if buffers is not None:
            torch.testing.assert_close(kept[row], buffers[0], rtol=1e-13, atol=1e-15)


@given(lr=st.floats(1e-3, 1), damping=st.floats(1e-3, 10), g=st.floats(-5, 5), d=st.floats(0, 5))
def test_the_reference_is_algorithm_1(lr, damping, g, d):
    theta = torch.tensor([1.0], dtype=torch.float64)
    reference.step(
        [theta], [torch.full_like(theta, g)], [torch.full_like(theta, d)], None, lr=lr,
        damping=[damping], fill=[0.0], momentum=0.0, nesterov=False, weight_decay=0.0,
        maximize=False,
    )  # fmt: skip
    assert float(theta) == pytest.approx(1 - lr * g / (d + damping), rel=1e-12)


@given(seed=st.integers(0, 999), size=st.integers(1, 6))
def test_jacobi_is_unmoved_by_any_diagonal_rescaling(seed, size):
    generator = torch.Generator().manual_seed(seed)
    matrix = torch.randn(size, size, dtype=torch.float64, generator=generator)
    matrix = matrix + matrix.T
    gradient = torch.randn(size, dtype=torch.float64, generator=generator)
    scales = torch.exp(torch.randn(size, dtype=torch.float64, generator=generator))
    rescaled = matrix / scales[:, None] / scales
    step = gradient / exact.jacobi(matrix)
    torch.testing.assert_close(gradient / scales / exact.jacobi(rescaled) / scales, step)


@given(decay=st.floats(0.8, 0.99), every=st.integers(1, 5), wait=st.integers(1, 20))
def test_memory_is_counted_in_steps_however_often_it_is_probed(decay, every, wait):
    """A parabola until the steady state, then a line: the share left is decay^(steps since)."""
    weight = torch.tensor([1.0], dtype=torch.float64, requires_grad=True)
    optimizer = JacobiSGD([weight], lr=0.0, decay=decay, probe_every=every, warmup_probes=1)
    weights, rounds = 0.0, every * (1 + int(200 / every))
    for _ in range(rounds // every):
        weights = next_weight(weights, every, decay)
    train(optimizer, lambda: weight.square().sum(), rounds)
    train(optimizer, lambda: (0 * weight.square() + weight).sum(), every * wait + 1)
    total = weights
    for _ in range(wait + 1):
        total = next_weight(total, every, decay)
    share = weights * decay ** (every * (wait + 1)) / total
    assert float(optimizer.diagonal()[0] / 2) == pytest.approx(share, rel=1e-6)


def test_the_squared_gradient_is_rmsprops_average():
    """Folded at every step with decay alpha it is torch's square_avg, corrected for its bias."""
    weight = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.RMSprop([weight], lr=0.0, alpha=0.9)
    diagonal, total = torch.zeros(4, dtype=torch.float64), 0.0
    for _ in range(7):
        weight.grad = torch.randn(4, dtype=torch.float64)
        optimizer.step()
        total = next_weight(total, 1, 0.9)
        squared_gradient.fold_(diagonal, weight.grad, total)
    average = optimizer.state[weight]["square_avg"] / (1 - 0.9**7)
    torch.testing.assert_close(squared_gradient.magnitude(diagonal), average.sqrt())
