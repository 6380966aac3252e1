"""Curvature that is not finite: never folded, told, and a first step without any is refused."""

import math
import warnings

import pytest
import torch

from equilibrate import ESGD, draw
from tests.optim.bad_input import BOTH, WARMUP, always_due, loss_of, network
from tests.optim.loops import train, train_by_closure
from tests.optim.watching import parameters_of, same, unchanged

NAN, INFINITY = math.nan, math.inf
FINITE = "No finite curvature has been measured yet"


@BOTH
@WARMUP
@pytest.mark.parametrize("factor", [NAN, INFINITY])
def test_without_finite_curvature_the_first_step_is_refused(kind, warmup, factor):
    model = network()
    optimizer = always_due(model, steps=0, warmup=warmup, kind=kind)
    before = [p.detach().clone() for p in model.parameters()]
    loss = loss_of(model)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        optimizer.probe(loss * factor)
        loss.backward()
        with pytest.raises(RuntimeError, match=FINITE):
            optimizer.step()
    assert all("not finite and was dropped" in str(w.message) for w in caught)
    assert caught
    assert same([p.detach() for p in model.parameters()], before)
    assert not any(bool(d.any()) for d in optimizer.diagonal())
    assert optimizer.probe_due
    optimizer.zero_grad()
    train(optimizer, lambda: loss_of(model), 1)  # and a finite loss mends it
    assert all(bool(d.any()) for d in optimizer.diagonal())


@pytest.mark.filterwarnings("ignore:A curvature product was not finite")
@pytest.mark.parametrize("factor", [NAN, INFINITY])
def test_a_first_closure_without_finite_curvature_is_refused_as_such(factor):
    model = network()
    optimizer = always_due(model, steps=0)
    with (
        unchanged(optimizer, but=("gradients", "state")),  # it may count a product dropped
        pytest.raises(RuntimeError, match="finite"),
    ):
        train_by_closure(optimizer, lambda: loss_of(model) * factor, 1)


@BOTH
@WARMUP
@pytest.mark.parametrize("factor", [NAN, INFINITY])
def test_a_later_product_that_is_not_finite_is_dropped_and_counted(kind, warmup, factor):
    model = network()
    optimizer = kind(model.parameters(), lr=0.01, probe_every=3, warmup_probes=warmup)
    train(optimizer, lambda: loss_of(model), 3)
    diagonal = optimizer.diagonal()
    counts = [optimizer.state[p]["probes"] for p in model.parameters()]
    before = [p.detach().clone() for p in model.parameters()]
    loss = loss_of(model)
    assert optimizer.probe(loss * factor)
    loss.backward()
    with pytest.warns(UserWarning, match="not finite and was dropped"):
        optimizer.step()
    assert same(optimizer.diagonal(), diagonal)
    assert [optimizer.state[p]["probes"] for p in model.parameters()] == counts
    assert optimizer.param_groups[0]["dropped_probes"] == 1
    assert optimizer.probe_due, "the probe is still wanted"
    assert not any(same(p.detach(), b) for p, b in zip(model.parameters(), before, strict=True))


def test_one_element_that_is_not_finite_drops_the_product_of_every_parameter():
    optimizer = always_due(network(), steps=2)
    diagonal = optimizer.diagonal()
    vectors = draw("gaussian", parameters_of(optimizer))
    products = [v.clone() for v in vectors]
    products[1][2] = NAN
    optimizer.observe(vectors, products)
    with pytest.warns(UserWarning, match="dropped"):
        optimizer.step()
    assert same(optimizer.diagonal(), diagonal)


def test_a_float16_product_by_closure_that_overflows_is_dropped_and_told():
    weight = torch.ones(8, dtype=torch.float16, requires_grad=True)
    optimizer = ESGD([weight], lr=1e-3, probe_every=1)
    curvature = 1.0

    def closure():
        optimizer.zero_grad()
        loss = curvature * (weight - 1).float().square().sum() / 2
        loss.backward()
        return loss

    for _ in range(2):
        optimizer.step(closure)
    curvature = 1e5
    with pytest.warns(UserWarning, match="not finite and was dropped"):
        optimizer.step(closure)
    torch.testing.assert_close(optimizer.diagonal(), [torch.ones(8)], rtol=1e-2, atol=0.0)
