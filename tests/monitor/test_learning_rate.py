"""The suggested learning rate against the dense answer, and against what training says."""

import math
from pathlib import Path

import pytest
import torch

from equilibrate import ESGD, hessian
from equilibrate.exact import equilibration
from equilibrate.monitor import suggest_learning_rate
from equilibrate.monitor.learning_rate import FEWEST_STEPS
from equilibrate.monitor.suggested_rate import SHARE, SuggestedRate
from tests.optim.loops import train


def network(width=6):
    torch.manual_seed(3)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, width), torch.nn.Tanh(), torch.nn.Linear(width, 2)
    ).double()
    x, y = torch.randn(64, 4).double(), torch.randn(64, 2).double()
    return model, lambda: (model(x.to(model[0].weight)) - y.to(model[0].weight)).square().mean()


def test_the_edge_is_two_over_the_radius_of_the_dense_matrix():
    """With the exact D the rest is Lanczos, which is exact after as many steps as parameters."""
    model, loss = network()
    parameters = list(model.parameters())
    matrix = hessian(loss(), parameters)
    probes = 4000
    found = suggest_learning_rate(loss(), parameters, damping=0.0, probes=probes, steps=44)
    diagonal = equilibration(matrix)
    radius = torch.linalg.eigvals(matrix / diagonal[:, None]).abs().max()
    # D is off by at most about 4 / sqrt(probes) of itself in the worst of 44 elements.
    assert found.edge == pytest.approx(2 / float(radius), rel=4 / math.sqrt(probes))
    assert found.products == probes + 44


@pytest.mark.parametrize("damping", [0.0, 0.1, 1e6])
def test_an_absolute_damping_is_added_to_every_tensors_diagonal(damping):
    model, loss = network()
    parameters = list(model.parameters())
    matrix, probes = hessian(loss(), parameters), 4000
    how = {"damping": damping, "damping_kind": "absolute", "probes": probes, "steps": 44}
    found = suggest_learning_rate(loss(), parameters, **how)
    denominators = equilibration(matrix) + damping
    radius = torch.linalg.eigvals(matrix / denominators[:, None]).abs().max()
    assert found.edge == pytest.approx(2 / float(radius), rel=4 / math.sqrt(probes))
    if damping > 1e3:  # gradient descent
        sharpness = torch.linalg.eigvalsh(matrix).abs().max()
        assert found.edge / damping == pytest.approx(2 / float(sharpness), rel=1e-4)


def test_an_initial_damping_is_a_share_of_the_mean_over_all_tensors():
    model, loss = network()
    parameters = list(model.parameters())
    matrix, probes = hessian(loss(), parameters), 4000
    how = {"damping": 0.5, "damping_kind": "initial", "probes": probes, "steps": 44}
    found = suggest_learning_rate(loss(), parameters, **how)
    diagonal = equilibration(matrix)
    denominators = diagonal + 0.5 * diagonal.mean()
    radius = torch.linalg.eigvals(matrix / denominators[:, None]).abs().max()
    assert found.edge == pytest.approx(2 / float(radius), rel=4 / math.sqrt(probes))


def test_an_element_without_curvature_sets_no_limit_without_damping():
    w = torch.ones(3, dtype=torch.float64, requires_grad=True)
    loss = (torch.tensor([0.0, 2.0, 4.0], dtype=torch.float64) * w**2).sum()
    found = suggest_learning_rate(loss, [w], damping=0.0, damping_kind="absolute")
    assert found.edge == pytest.approx(2.0)


@pytest.mark.parametrize("kind", ["relative", "initial"])
@pytest.mark.parametrize("factor", [1e-6, 1e6])
def test_the_scale_of_the_loss_changes_nothing(factor, kind):
    model, loss = network()
    parameters = list(model.parameters())
    plain = suggest_learning_rate(loss(), parameters, damping_kind=kind)
    scaled = suggest_learning_rate(factor * loss(), parameters, damping_kind=kind)
    assert scaled.lr == pytest.approx(plain.lr, rel=1e-6)


@pytest.mark.parametrize(
    ("dtype", "exponent"),
    [(torch.float32, -84), (torch.float32, 84), (torch.float64, -600), (torch.float64, 600)],
)
def test_no_scale_is_too_small_or_too_large_to_be_squared(dtype, exponent):
    """An even power of two, of which D has the root: every bit is the same."""
    model, loss = network()
    model.to(dtype)
    parameters = list(model.parameters())
    plain = suggest_learning_rate(loss(), parameters)
    scaled = suggest_learning_rate(2.0**exponent * loss(), parameters)
    assert (scaled.lr, scaled.edge) == (plain.lr, plain.edge)


def test_nothing_is_changed_and_the_loss_can_still_be_used():
    model, loss = network()
    before = [p.detach().clone() for p in model.parameters()]
    state = torch.get_rng_state()
    value = loss()
    suggest_learning_rate(value, model.parameters())
    assert all(p.grad is None for p in model.parameters())
    assert torch.equal(state, torch.get_rng_state())
    optimizer = ESGD(model.parameters())
    optimizer.probe(value)
    value.backward()
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))


MOMENTA = {
    "none": {},
    "heavy ball": {"momentum": 0.9},
    "little": {"momentum": 0.5},
    "Nesterov": {"momentum": 0.9, "nesterov": True},
}
over_momenta = pytest.mark.parametrize("momentum", MOMENTA.values(), ids=MOMENTA.keys())


@over_momenta
def test_esgd_on_a_quadratic_converges_just_below_the_edge_and_diverges_just_above(momentum):
    """Both draw the same 20 vectors, so that D is the same; five steps of Lanczos are exact."""
    root = torch.randn(5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    matrix = root @ root.mT
    for factor, converges in ((0.98, True), (1.02, False)):
        w = torch.ones(5, dtype=torch.float64, requires_grad=True)
        edge = suggest_learning_rate(w @ matrix @ w / 2, [w], steps=5, **momentum).edge
        optimizer = ESGD([w], factor * edge, probe_every=10**9, growth_limit=None, **momentum)
        losses = train(optimizer, lambda w=w: w @ matrix @ w / 2, 300)
        assert (losses[-1] < losses[0]) == converges, factor


@over_momenta
def test_the_rate_is_a_share_of_nesterovs_edge_whichever_momentum(momentum):
    """Heavy-ball momentum has a larger edge, and networks that fail far below it."""
    model, loss = network()
    parameters = list(model.parameters())
    nesterov = suggest_learning_rate(loss(), parameters, **momentum | {"nesterov": True})
    found = suggest_learning_rate(loss(), parameters, **momentum)
    assert found.lr == nesterov.lr == pytest.approx(SHARE * nesterov.edge)
    assert found.lr < found.edge
    assert f"{found.lr:.2g}" in str(found)
    assert f"{found.edge:.2g}" in str(found)
    assert f"{nesterov.edge:.2g}" in str(found)


@over_momenta
def test_the_message_says_what_the_rate_is_a_third_of(momentum):
    """Heavy-ball: (2 + 2 m) / (1 + 2 m) / 3 of a radius, against an edge of (2 + 2 m)."""
    model, loss = network()
    found = suggest_learning_rate(loss(), list(model.parameters()), **momentum)
    m = momentum.get("momentum", 0.0)
    own = 1 / 3 if momentum.get("nesterov") else 1 / (3 + 6 * m)
    assert found.lr / found.edge == pytest.approx(own)
    heavy = bool(m) and not momentum.get("nesterov")
    assert ("a third of the edge of Nesterov's momentum" in str(found)) == heavy
    assert ("this is a third of that." in str(found)) == (not heavy)
    if heavy:
        assert f"this is {own:.2g} of that" in str(found)
    for words in ("are estimated to turn unstable", "It is an estimate", "without momentum that"):
        assert words in str(found)
    assert ("search downwards first" in str(found)) == bool(m)
    assert ("search a factor of three to both sides" in str(found)) == (not m)
    assert float(found) == found.lr


def test_the_error_that_the_message_tells_is_that_of_the_page():
    """The smallest and the largest of the table, of both quotients."""
    page = (Path(__file__).parents[2] / "docs" / "momentum.md").read_text()
    table = page[page.index("| suggested over best | edge over best |") :].split("\n\n")[0]
    rows = [line.split("|")[-3:-1] for line in table.splitlines()[2:]]
    shares, edges = (sorted(map(float, column)) for column in zip(*rows, strict=True))
    text = str(SuggestedRate(1.0, 3.0, 0.0, 1.0, 1))
    assert f"{edges[0]:.1g} to {edges[-1]:.1g} times the best" in text
    assert f"{shares[0]:.2g} to {shares[-1]:.2g} of the best" in text
    told = suggest_learning_rate.__doc__
    assert f"edge was {edges[0]:.2f} to {edges[-1]:.2f} times the best" in told


@over_momenta
def test_training_descends_at_the_rate_and_fails_at_a_hundred_times(momentum):
    ends = {}
    for factor in (1.0, 100.0):
        model, loss = network()
        rate = suggest_learning_rate(loss(), model.parameters(), **momentum).lr
        losses = train(ESGD(model.parameters(), factor * rate, **momentum), loss, 60)
        ends[factor] = losses[-1] / losses[0]
    assert ends[1.0] < 0.8
    assert not ends[100.0] < 1


def test_a_loss_without_curvature_sets_no_limit():
    w = torch.ones(3, requires_grad=True)
    found = suggest_learning_rate((2 * w).sum() + 0 * w.square().sum(), [w])
    assert found.lr == found.edge == math.inf


def test_curvature_that_is_not_finite_is_refused():
    w = torch.zeros(1, requires_grad=True)
    with pytest.raises(ValueError, match="not finite"):
        suggest_learning_rate(w.sqrt().sum() * w.sum(), [w])


def test_the_fewest_steps_keep_the_rate_below_the_edge():
    """Networks of 30 to 562 parameters: fewer steps miss the largest curvature by more."""
    for width in (4, 16, 80):
        model, loss = network(width)
        exact = suggest_learning_rate(loss(), model.parameters(), steps=60)
        found = suggest_learning_rate(loss(), model.parameters(), steps=FEWEST_STEPS)
        assert exact.lr <= found.lr * (1 + 1e-6) < exact.edge
