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

from equilibrate.curvature import LossHessian, attention_gradient
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


@pytest.fixture(autouse=True)
def _small_ones_too(monkeypatch):
    monkeypatch.setattr("equilibrate.curvature.second_derivatives._FROM", 0)


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


@pytest.mark.parametrize("places", [1, 3, 8, 11, 20])
def test_attention_a_part_at_a_time_is_the_same(torchs, monkeypatch, places):
    """Some heads of one of three cases at a time, or some cases."""
    for_each = torch.linspace(-2, 2, 3 * 4 * 36).double().view(3, 4, 6, 6)
    monkeypatch.setattr("equilibrate.curvature.attention_gradient._AT_ONCE", places * 36)
    for mask in (None, SEEN, for_each, for_each[:, :1], for_each[:1], for_each[:1, :1]):
        case = Attend(cases=3, attn_mask=mask)
        hessian, parameters, _ = _hessian(case)
        assert _is_ours(hessian)
        vectors = _vectors(parameters, 1)
        near = {"rtol": 1e-12, "atol": 1e-12}
        torch.testing.assert_close([hessian(v) for v in vectors], torchs(case, vectors), **near)


def test_torchs_own_gradients_differ_in_rows_that_finfo_min_hides():
    """A limit of torch; if this fails, it is one no more, and docs/limits.md says too much."""
    mask = torch.zeros(4, 4)
    mask[0] = torch.finfo(torch.float32).min
    q, k, v = (torch.randn(1, 1, 4, 3, requires_grad=True) for _ in range(3))
    found = []
    for kernel in (SDPBackend.FLASH_ATTENTION, SDPBackend.MATH):
        with sdpa_kernel(kernel):
            made = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask)
        found.append((made, *torch.autograd.grad(made.sin().sum(), v)))
    torch.testing.assert_close(found[0][0], found[1][0])
    assert (found[0][1] - found[1][1]).norm() > 0.1 * found[1][1].norm()


class ScaledDotProductFlashAttentionBackward0:
    """A GPU's flash node, played by that of a CPU that was given the mask."""

    _saved_is_causal, _saved_dropout_p = True, 0.0

    def __init__(self, node):
        names = ("_saved_query", "_saved_key", "_saved_value", "_saved_scale")
        for name in names:
            setattr(self, name, getattr(node, name))


@pytest.mark.parametrize("lengths", [(4, 7), (7, 4), (5, 5)])
def test_flash_on_a_gpu_is_causal_from_the_lower_right(torchs, monkeypatch, lengths):
    """`torch.nn.attention.bias.causal_lower_right` gives it no mask."""

    def on_a_gpu(node, *gradients):
        flash = ScaledDotProductFlashAttentionBackward0(node)
        return attention_gradient.replace(flash, *gradients)

    queries, keys = lengths
    seen = torch.ones(lengths, dtype=torch.bool).tril(keys - queries)
    case = Attend(lengths=lengths, attn_mask=seen)
    vectors = _vectors(case()[0], 1)
    expected = torchs(case, vectors)
    monkeypatch.setitem(REPLACE, "ScaledDotProductFlashAttentionForCpuBackward0", on_a_gpu)
    hessian, *_ = _hessian(case)
    near = {"rtol": 1e-12, "atol": 1e-12}
    torch.testing.assert_close([hessian(v) for v in vectors], expected, **near)


def test_a_mask_that_is_changed_before_a_product_is_noticed():
    """As torch notices it in what it has saved; the loss is linear in what attention gives."""
    q, k, v = vectors = [torch.randn(1, 1, 4, 3, requires_grad=True) for _ in range(3)]
    mask = torch.zeros(4, 4)
    loss = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask).sum()
    hessian = LossHessian(loss, vectors)
    mask.fill_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        hessian([torch.randn_like(t) for t in vectors])


def test_a_third_derivative_is_refused():
    """Ours are differentiated no further."""
    hessian, parameters, _ = _hessian(CASES["gelu"])
    again = sum(g.square().sum() for g in hessian.live if g is not None)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        LossHessian(again, parameters)


SLOW = {
    "gelu": lambda x: functional.gelu(x),
    "log-softmax": lambda x: functional.log_softmax(x, -1),
    "batch norm": lambda x: functional.batch_norm(x, None, None, training=True),
    "layer norm": lambda x: functional.layer_norm(x, [64]),
}


@pytest.mark.parametrize("operation", SLOW.values(), ids=SLOW)
def test_where_torchs_is_right_ours_is_for_large_tensors(operation, monkeypatch):
    """2^15 elements, where it gains."""
    monkeypatch.undo()
    found = []
    for rows in (511, 512):
        x = torch.randn(rows, 64, requires_grad=True)
        found.append(_is_ours(LossHessian(operation(x).sin().sum(), [x])))
    assert found == [False, True]


def test_nested_tensors_are_left_to_torch():
    x = torch.nested.nested_tensor([torch.randn(n, 4) for n in (3, 5)], requires_grad=True)
    loss = functional.gelu(x).to_padded_tensor(0.0).sin().sum()
    with pytest.raises(NotImplementedError, match="NestedTensor"):  # torch's own reason
        LossHessian(loss, [x])([x.detach()])


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
