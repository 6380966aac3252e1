"""Every bad input gets an error that names the way out, and changes nothing."""

import math
import warnings
from collections.abc import Callable
from itertools import count

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from equilibrate import ESGD, JacobiSGD, draw
from tests.optim.loops import train, train_by_closure
from tests.optim.watching import parameters_of, same, unchanged

DOUBLE = torch.float64
X = torch.randn(6, 3, dtype=DOUBLE, generator=torch.Generator().manual_seed(0))
BOTH = pytest.mark.parametrize("kind", [ESGD, JacobiSGD])
WARMUP = pytest.mark.parametrize("warmup", [1, 3])
TRAINED = pytest.mark.parametrize("steps", [0, 2], ids=["fresh", "trained"])
INSTEAD = r"optimizer\.step\(closure\)"


def network() -> nn.Module:
    generator = torch.Generator().manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)).double()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, dtype=DOUBLE, generator=generator) / 2)
    return model


def loss_of(model: nn.Module) -> Tensor:
    return (model(X) - X.sum(1, keepdim=True)).square().mean()


def always_due(model: nn.Module, *, steps: int, warmup: int = 3, kind=ESGD, by_closure=False):
    """An optimizer that wants a probe, fresh or some steps old."""
    optimizer = kind(model.parameters(), lr=0.01, probe_every=1, warmup_probes=warmup)
    (train_by_closure if by_closure else train)(optimizer, lambda: loss_of(model), steps)
    assert optimizer.probe_due
    return optimizer


def under_no_grad(model: nn.Module) -> Tensor:
    with torch.no_grad():
        return loss_of(model)


def backpropagated(model: nn.Module) -> Tensor:
    loss = loss_of(model)
    loss.backward()
    return loss


# name: the loss, the error, what it says
BAD_LOSSES: dict[str, tuple[Callable[[nn.Module], object], type[Exception], str]] = {
    "not a scalar": (lambda m: m(X), ValueError, r"\(6, 1\).*loss\.mean\(\)"),
    "detached": (lambda m: loss_of(m).detach(), ValueError, r"not loss\.item\(\) or loss\.detach"),
    "under no_grad": (under_no_grad, ValueError, r"outside torch\.no_grad\(\)"),
    "a float": (lambda m: loss_of(m).item(), TypeError, "tensor, got float"),
    "complex": (lambda m: loss_of(m) * 1j, ValueError, r"\.real"),
    "of another model": (lambda m: loss_of(network()), ValueError, "another model"),
    "backpropagated": (backpropagated, RuntimeError, r"before loss\.backward\(\).*second time"),
}


@BOTH
@WARMUP
@TRAINED
@pytest.mark.parametrize("name", BAD_LOSSES)
def test_a_bad_loss_is_refused(name, kind, warmup, steps):
    make, error, words = BAD_LOSSES[name]
    model = network()
    optimizer = always_due(model, steps=steps, warmup=warmup, kind=kind)
    loss = make(model)
    with unchanged(optimizer), pytest.raises(error, match=words):
        optimizer.probe(loss)
    with unchanged(optimizer), pytest.raises(error, match=words):
        optimizer.calibrate([loss])


def test_no_trainable_parameter_is_refused():
    model = network()
    optimizer = always_due(model, steps=1)
    model.requires_grad_(False)
    loss = torch.ones((), requires_grad=True) * 2
    with unchanged(optimizer), pytest.raises(ValueError, match="requires a gradient"):
        optimizer.calibrate([loss])


class OnceDifferentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor) -> Tensor:
        return gradient * ctx.saved_tensors[0].cos()


class Opaque(OnceDifferentiable):
    """A backward that autograd cannot see through, as kernels in CUDA or Triton are."""

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        with torch.no_grad():
            return gradient * ctx.saved_tensors[0].cos()


def through(function: type[torch.autograd.Function]) -> Callable[[nn.Module], Tensor]:
    return lambda model: (function.apply(model(X)) - X[:, :1]).square().mean()


def once_then_linear(model: nn.Module) -> Tensor:
    """The gradient that comes in is a constant, so torch does not even mark the one going out."""
    return OnceDifferentiable.apply(model(X)).sum() + loss_of(model)


def fused_attention(model: nn.Module) -> Tensor:
    q = model[0](X).view(1, 1, 6, 4)
    return functional.scaled_dot_product_attention(q, q, q).square().mean() + loss_of(model)


def bag(model: nn.Module) -> Tensor:
    rows = torch.tensor([[0, 1], [2, 3]])
    return functional.embedding_bag(rows, model[0].weight).pow(4).mean() + loss_of(model)


def compiled(model: nn.Module) -> Tensor:
    return loss_of(torch.compile(model, backend="aot_eager"))


def reentrant(first: int, last: int) -> Callable[[nn.Module], Tensor]:
    """Put some of the layers under the older kind of checkpoint."""

    def forward(model: nn.Module, x: Tensor) -> Tensor:
        x = model[:first](x.clone().requires_grad_())
        return model[last:](checkpoint(model[first:last], x, use_reentrant=True))

    return lambda model: loss_of(lambda x: forward(model, x))


def fused_weight_norm(model: nn.Module) -> Tensor:
    """torch differentiates it as if the norm were a constant: wrong by a factor, silently."""
    weight = torch._weight_norm(model[0].weight, model[2].weight.T.contiguous(), 0)
    return loss_of(lambda x: model[2](torch.tanh(functional.linear(x, weight))))


# name: the loss, and what must be said of it; torch itself refuses the first five
ONCE_DIFFERENTIABLE: dict[str, tuple[Callable[[nn.Module], Tensor], str]] = {
    "fused attention": (fused_attention, "The reason: .*scaled_dot_product.*not implemented"),
    "an embedding bag": (bag, "The reason: .*embedding_bag.*not implemented"),
    "a compiled model": (compiled, "The reason: .*double backward"),
    "a reentrant checkpoint in the middle": (reentrant(1, 2), "The reason: .*[Cc]heckpoint"),
    "a reentrant checkpoint at the end": (reentrant(1, 3), "The reason: .*[Cc]heckpoint"),
    "a reentrant checkpoint at the start": (reentrant(0, 2), "[Cc]heckpoint"),
    "a reentrant checkpoint around all": (reentrant(0, 3), "[Cc]heckpoint"),
    "a once-differentiable function": (through(OnceDifferentiable), "OnceDifferentiable"),
    "a once-differentiable function, then linear": (once_then_linear, "OnceDifferentiable"),
    "an opaque backward": (through(Opaque), "Opaque"),
    "torch's weight norm": (fused_weight_norm, "[Ww]eight_?[Nn]orm"),
}


@TRAINED
@pytest.mark.parametrize("name", ONCE_DIFFERENTIABLE)
def test_without_second_derivatives_the_error_points_to_the_closure_which_works(name, steps):
    """Some of these torch would get wrong, or leave out, without a word."""
    make, words = ONCE_DIFFERENTIABLE[name]
    model = network()
    optimizer = always_due(model, steps=steps)
    loss = make(model)
    with unchanged(optimizer), pytest.raises(RuntimeError, match=f"(?s){INSTEAD}.*{words}"):
        optimizer.probe(loss)
    loss.backward()  # still can
    before = float(loss.detach())
    train_by_closure(optimizer, lambda: make(model), 5)
    assert float(make(model).detach()) < before


def sparse_embedding(steps: int):
    table = nn.Embedding(5, 3, sparse=True, dtype=DOUBLE)
    optimizer = ESGD(table.parameters(), lr=0.01, probe_every=1, warmup_probes=3)
    for _ in range(steps):  # measured elsewhere, so that the state is not empty
        optimizer.observe([torch.ones(5, 3)], [torch.ones(5, 3)])
        optimizer.step()
    return optimizer, lambda: table(torch.tensor([1, 2])).pow(4).sum()


@TRAINED
@pytest.mark.parametrize("way", ["probe", "step", "closure"])
def test_sparse_gradients_are_refused(way, steps):
    optimizer, loss = sparse_embedding(steps)
    live = loss()
    if way == "step":
        live.backward()
    call = {
        "probe": lambda: optimizer.probe(live),
        "step": optimizer.step,
        "closure": lambda: train_by_closure(optimizer, loss, 1),
    }[way]
    but = ("gradients",) if way == "closure" else ()  # the closure leaves its own
    with (
        unchanged(optimizer, but=but),
        pytest.raises(RuntimeError, match=r"sparse=False.*SparseAdam"),
    ):
        call()


@BOTH
def test_complex_parameters_are_refused(kind):
    complex_one = nn.Parameter(torch.ones(2, dtype=torch.complex64))
    with pytest.raises(ValueError, match=r"complex64.*torch\.view_as_real"):
        kind([complex_one])
    optimizer = always_due(network(), steps=1, kind=kind)
    with unchanged(optimizer), pytest.raises(ValueError, match=r"complex64.*torch\.view_as_real"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1)), complex_one]})
    assert len(optimizer.param_groups) == 1


@BOTH
def test_a_step_before_any_probe_is_refused(kind):
    model = network()
    optimizer = kind(model.parameters())
    loss_of(model).backward()
    words = rf"(?s)optimizer\.probe\(loss\) before loss\.backward\(\).*{INSTEAD}"
    with unchanged(optimizer), pytest.raises(RuntimeError, match=words):
        optimizer.step()


# name: what is observed after the first, right call; vectors and products; what the error says
BAD_OBSERVATIONS: dict[str, tuple[Callable[..., tuple[list, list]], str]] = {
    "too few vectors": (lambda v: (v[:-1], v), "each of the 4 parameters.*got 3 and 4"),
    "too few products": (lambda v: (v, v[:-1]), "got 4 and 3"),
    "too many": (lambda v: ([*v, v[0]], [*v, v[0]]), "got 5 and 5"),
    "a vector's shape": (lambda v: ([v[0].T, *v[1:]], v), r"parameter 0: .*expected \(4, 3\)"),
    "a product's shape": (lambda v: (v, [*v[:-1], v[0]]), r"parameter 3: .*expected \(1,\)"),
    "no product to a vector": (lambda v: (v, [None, *v[1:]]), "only one of.*parameter 0"),
    "other vectors": (lambda v: ([-a for a in v], v), "the same vectors for every micro-batch"),
    "vectors for fewer": (
        lambda v: ([None, *v[1:]], [None, *v[1:]]),
        "the same vectors for every micro-batch",
    ),
}


@BOTH
@TRAINED
@pytest.mark.parametrize("name", BAD_OBSERVATIONS)
def test_a_bad_observation_is_refused(name, kind, steps):
    make, words = BAD_OBSERVATIONS[name]
    optimizer = always_due(network(), steps=steps, kind=kind)
    vectors = draw("gaussian", parameters_of(optimizer))
    optimizer.observe(vectors, vectors)
    bad = make(vectors)
    with unchanged(optimizer), pytest.raises(ValueError, match=words):
        optimizer.observe(*bad)


def test_vectors_drawn_anew_into_the_same_tensors_are_refused():
    optimizer = always_due(network(), steps=2)
    vectors = draw("gaussian", parameters_of(optimizer))
    optimizer.observe(vectors, [v.clone() for v in vectors])
    pending = [total.clone() for total in optimizer._pending.sums.values()]
    for v in vectors:
        v.neg_()
    with pytest.raises(ValueError, match="the same vectors"):
        optimizer.observe(vectors, vectors)
    assert same(list(optimizer._pending.sums.values()), pending)


@WARMUP
def test_observing_and_probing_for_one_step_is_refused(warmup):
    model = network()
    optimizer = always_due(model, steps=2, warmup=warmup)
    vectors = draw("gaussian", parameters_of(optimizer))
    optimizer.probe(loss_of(model))
    with unchanged(optimizer), pytest.raises(ValueError, match="not with probe"):
        optimizer.observe(vectors, vectors)

    optimizer = always_due(model, steps=2, warmup=warmup)
    optimizer.observe(vectors, vectors)
    loss = loss_of(model)
    with unchanged(optimizer), pytest.raises((ValueError, RuntimeError), match="observe"):
        optimizer.probe(loss)


@TRAINED
def test_calibrating_on_nothing_is_refused(steps):
    optimizer = always_due(network(), steps=steps)
    with unchanged(optimizer), pytest.raises(ValueError, match="iterable of live losses"):
        optimizer.calibrate([])


NAN, INFINITY = math.nan, math.inf
OUT_OF_RANGE = {
    "lr": [
        *(-0.1, NAN, INFINITY, "0.1", None, True),
        *(torch.tensor(-1.0), torch.tensor(NAN), torch.tensor(INFINITY), torch.ones(2)),
    ],
    "damping": [-1e-9, NAN, INFINITY, None, "relative"],
    "damping_kind": ["abs", None, 1],
    "decay": [0.0, 1.0, 1, -0.5, NAN, "none", True],
    "probe_every": [0, -1, 2.0, None, True],
    "warmup_probes": [0, -3, 1.5, None, True],
    "distribution": ["normal", None, 0],
    "momentum": [-0.1, 1.0, NAN, None, True],
    "nesterov": [True, 1, None],  # True, because momentum is zero
    "update_limit": [0.0, -0.1, NAN, INFINITY, "none", True],
    "growth_limit": [1.0, 0.0, -2.0, NAN, INFINITY, "none", True],
    "weight_decay": [-0.1, NAN, INFINITY, None],
    "maximize": [1, None, "yes"],
    "foreach": ["yes", 2],
    "fused": ["yes", 2],
    "capturable": ["yes", None],
    "seed": [0.5, "0", None, 2**63, -(2**63)],
}


@BOTH
@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, values in OUT_OF_RANGE.items() for value in values],
    ids=str,
)
def test_a_hyper_parameter_out_of_range_is_refused(name, value, kind):
    with pytest.raises(ValueError, match=f"Invalid {name}: ") as refusal:
        kind(network().parameters(), **{name: value})
    assert repr(value) in str(refusal.value)

    optimizer = always_due(network(), steps=1, kind=kind)
    extra = {"params": [nn.Parameter(torch.ones(2))], name: value}
    with unchanged(optimizer), pytest.raises(ValueError, match=f"Invalid {name}: ") as refusal:
        optimizer.add_param_group(extra)
    assert repr(value) in str(refusal.value)
    assert len(optimizer.param_groups) == 1
    train(
        optimizer, lambda: torch.stack([p.pow(2).sum() for p in parameters_of(optimizer)]).sum(), 1
    )


@BOTH
@TRAINED
def test_a_closure_that_accumulates_is_refused(kind, steps):
    model = network()
    optimizer = always_due(model, steps=steps, kind=kind, by_closure=True)
    optimizer.zero_grad()
    loss_of(model).backward()

    def accumulating() -> Tensor:
        loss = functional.smooth_l1_loss(functional.dropout(model(X)), X[:, :1])
        loss.backward()
        return loss

    words = r"optimizer\.probe\(loss\).*zero_grad\(\)"
    with unchanged(optimizer), pytest.raises(RuntimeError, match=words):
        optimizer.step(accumulating)
    assert not optimizer.measuring


@BOTH
@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE], ids=str)
@pytest.mark.parametrize("size", [8, 512])
def test_a_closure_that_draws_a_new_batch_each_time_is_refused(kind, size, dtype):
    model = network().to(dtype)
    optimizer = kind(model.parameters(), lr=0.01)
    draws = count()

    def closure() -> Tensor:
        generator = torch.Generator().manual_seed(next(draws))  # as a loader with its own
        x = torch.randn(size, 3, dtype=dtype, generator=generator)
        optimizer.zero_grad()
        loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
        loss.backward()
        return loss

    with unchanged(optimizer), pytest.raises(RuntimeError, match="the batch outside the closure"):
        optimizer.step(closure)
    assert not optimizer.measuring


def test_a_closure_with_torchs_own_randomness_is_welcome():
    model = network()
    optimizer = ESGD(model.parameters(), lr=0.01, warmup_probes=3)

    def noisy() -> Tensor:
        x = torch.randn(8, 3, dtype=DOUBLE)
        return (model(functional.dropout(x)) - x.sum(1, keepdim=True)).square().mean()

    torch.manual_seed(0)
    noisy()
    after_one_pass = torch.get_rng_state()
    torch.manual_seed(0)
    train_by_closure(optimizer, noisy, 1)
    assert same(torch.get_rng_state(), after_one_pass)


@TRAINED
@pytest.mark.parametrize("run", [2, 3])
def test_an_error_inside_the_closure_at_a_displaced_point_leaves_no_trace(run, steps):
    model = network()
    optimizer = always_due(model, steps=steps, by_closure=True)
    runs = count(1)

    def failing() -> Tensor:
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        torch.rand(1)
        if next(runs) == run:
            raise KeyError("the user's own")
        return loss

    (3 * loss_of(model)).backward()
    with unchanged(optimizer), pytest.raises(KeyError):
        optimizer.step(failing)
    assert not optimizer.measuring


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
