"""Our own second derivatives against torch's slow ones, or torch's of what is written out."""

from contextlib import nullcontext
from copy import deepcopy
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils.parametrizations import weight_norm
from torch.utils.checkpoint import checkpoint

from equilibrate.curvature import LossHessian
from equilibrate.curvature.graph import nodes
from equilibrate.curvature.second_derivatives import REPLACE
from tests.curvature.replaced import CASES, SEEN, Attend, Bag

OURS = "_KnownBackward"


def _hessian(case, *, torchs=False, through=lambda run: run()):
    parameters, outputs = case(plainly=torchs)
    with sdpa_kernel(SDPBackend.MATH) if torchs else nullcontext():
        loss = through(outputs).sin().square().sum()
    return LossHessian(loss, parameters), parameters, loss


def _vectors(parameters, count):
    torch.manual_seed(1)
    return [[torch.randn_like(p) for p in parameters] for _ in range(count)]


def _is_ours(hessian):
    return any(node.name() == OURS for g in hessian.live if g is not None for node in nodes(g))


@pytest.fixture
def torchs(monkeypatch):
    """Products by torch's formulas alone, of what is written out where torch has none."""

    def products(case, vectors):
        with monkeypatch.context() as patch:
            for name in list(REPLACE):
                patch.delitem(REPLACE, name)
            hessian, *_ = _hessian(case, torchs=True)
            assert not _is_ours(hessian)
            return [hessian(v) for v in vectors]

    return products


@pytest.fixture(params=CASES.values(), ids=CASES)
def case(request):
    return request.param


def test_products_are_those_of_torch_one_and_several_at_once(case, torchs):
    hessian, parameters, _ = _hessian(case)
    assert _is_ours(hessian)
    vectors = _vectors(parameters, 2)
    expected = torchs(case, vectors)
    near = {
        "rtol": 1e-12,
        "atol": 1e-12,
    }  # sums of some hundred terms of size one, in another order
    torch.testing.assert_close([hessian(v) for v in vectors], expected, **near)
    stacked = hessian([torch.stack(pair) for pair in zip(*vectors, strict=True)], stacked=True)
    torch.testing.assert_close([list(p) for p in zip(*stacked, strict=True)], expected, **near)


def test_attention_some_heads_at_a_time_is_the_same(torchs, monkeypatch):
    of_heads = torch.linspace(-2, 2, 4 * 36).double().view(4, 6, 6)
    of_cases = torch.linspace(-2, 2, 2 * 36).double().view(2, 1, 6, 6)
    monkeypatch.setattr("equilibrate.curvature.attention_gradient._AT_ONCE", 3 * 2 * 36)
    for mask in (None, SEEN, of_heads.expand(2, 4, 6, 6), of_cases):
        case = Attend(attn_mask=mask)
        hessian, parameters, _ = _hessian(case)
        assert _is_ours(hessian)
        vectors = _vectors(parameters, 1)
        near = {"rtol": 1e-12, "atol": 1e-12}
        torch.testing.assert_close([hessian(v) for v in vectors], torchs(case, vectors), **near)


def test_gradients_and_the_users_own_passes_stay_as_they_are(case):
    hessian, parameters, loss = _hessian(case)
    mine = torch.autograd.grad(loss, parameters, create_graph=True)
    assert not any(node.name() == OURS for g in mine for node in nodes(g))
    torch.testing.assert_close(hessian.gradients, [g.detach() for g in mine], rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_attention_loses_no_more_in_narrow_types_than_torch(dtype, torchs):
    exact, narrow = Attend(is_causal=True), Attend(is_causal=True, dtype=dtype)
    hessian, *_ = _hessian(narrow)
    rounded = [[v.to(dtype) for v in vectors] for vectors in _vectors(exact()[0], 1)]

    def error(products):
        pairs = zip(products, _hessian(exact)[0]([v.double() for v in rounded[0]]), strict=True)
        return max(((p - e).norm() / e.norm()).item() for p, e in pairs)

    # q, k and v are rounded before either begins, hence the factor.
    assert error(hessian(rounded[0])) <= 1.5 * error(torchs(narrow, rounded)[0])


LAYERS = {
    "gelu": lambda: nn.GELU(),
    "gelu by tanh": lambda: nn.GELU(approximate="tanh"),
    "log-softmax": lambda: nn.LogSoftmax(1),
    "batch norm": lambda: nn.BatchNorm1d(4),
    "layer norm": lambda: nn.LayerNorm(6),
    "convolution": lambda: nn.Conv1d(4, 4, 3),
    "weight norm": lambda: weight_norm(nn.Linear(6, 6)),
}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", LAYERS)
def test_other_operations_lose_no_more_in_narrow_types_than_torch(name, dtype, monkeypatch):
    """As parameters of that type, and under autocast; the exact product is of the same numbers."""
    torch.manual_seed(0)
    layer = nn.Sequential(nn.Conv1d(4, 4, 1), LAYERS[name](), nn.Conv1d(4, 2, 1))
    x, vectors = torch.randn(8, 4, 6), [torch.randn_like(p) for p in layer.parameters()]

    def product(cast, *, under=nullcontext):
        made, values = deepcopy(layer).to(dtype).to(cast), [v.to(dtype).to(cast) for v in vectors]
        with under():
            loss = made(x.to(dtype).to(cast)).float().sin().square().mean()
        return LossHessian(loss, list(made.parameters()))(values)

    def error(found, exact):
        return sum((f - e).norm() ** 2 for f, e in zip(found, exact, strict=True)) ** 0.5

    def errors():
        under = partial(torch.autocast, "cpu", dtype)
        ways = product(dtype), product(torch.float32, under=under)
        return [error(found, product(torch.float64)) for found in ways]

    ours = errors()
    if name != "weight norm":  # torch's is wrong in any type
        monkeypatch.setattr("equilibrate.curvature.second_derivatives.REPLACE", {})
    scale = error(product(torch.float64), [torch.zeros(())] * len(vectors))
    for mine, torchs in zip(ours, errors(), strict=True):
        assert mine <= 1.5 * torchs + torch.finfo(dtype).eps * scale


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_is_straight_far_from_the_origin(approximate):
    x = torch.tensor([-1e12, -1e6, -30.0, 30.0, 1e6, 1e12], requires_grad=True)
    hessian = LossHessian(functional.gelu(x, approximate=approximate).sum(), [x])
    assert torch.equal(hessian([torch.ones(6)])[0], torch.zeros(6))


OF_THEIRS = {  # with a hook on it: torch's own product, or the reason why there is none
    "convolution": None,
    "batch norm": None,
    "layer norm": None,
    "gelu": None,
    "log-softmax": None,
    "attention": "not implemented",
    "bags of sums": "not implemented",
    "weight norm, 0": "a hook of its own",
}


@pytest.mark.parametrize("name", OF_THEIRS)
def test_somebody_elses_hook_is_not_undone(name):
    """A hook of a node that doubles what leaves: its derivative is doubled, or there is none."""

    def doubled(run):
        outputs = run()
        double = lambda leaving, _: tuple(None if g is None else 2 * g for g in leaving)  # noqa: E731
        next(n for n in nodes(outputs) if type(n).__name__ in REPLACE).register_hook(double)
        return outputs

    if OF_THEIRS[name]:
        (vectors,) = _vectors(CASES[name]()[0], 1)
        with pytest.raises(RuntimeError, match=OF_THEIRS[name]):
            _hessian(CASES[name], through=doubled)[0](vectors)
        return
    hessian, parameters, loss = _hessian(CASES[name], through=doubled)
    (vectors,) = _vectors(parameters, 1)
    gradients = torch.autograd.grad(loss, parameters, create_graph=True)
    expected = torch.autograd.grad(gradients, parameters, vectors, retain_graph=True)
    torch.testing.assert_close(hessian(vectors), list(expected), rtol=1e-12, atol=1e-12)


def test_convolutions_in_a_checkpoint_are_ours_too(torchs):
    case = CASES["convolution"]
    hessian, parameters, _ = _hessian(
        case, through=lambda run: checkpoint(run, use_reentrant=False)
    )
    assert _is_ours(hessian)
    vectors = _vectors(parameters, 1)
    near = {"rtol": 1e-12, "atol": 1e-12}
    torch.testing.assert_close([hessian(v) for v in vectors], torchs(case, vectors), **near)


@pytest.mark.parametrize(
    "case",
    [
        Attend(dropout_p=0.5),
        Bag(mode="max"),
        Bag(mode="sum", scale_grad_by_freq=True),
        Bag(mode="sum", sparse=True),
    ],
)
def test_what_is_not_known_is_left_to_torch(case):
    hessian, *_ = _hessian(case)
    assert not _is_ours(hessian)
