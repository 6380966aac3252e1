"""Our own second derivatives against torch's slow ones, or torch's of what is written out."""

from contextlib import nullcontext

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

OURS = "_KnownBackward"


class Attend:
    """Attention of parameters q, k and v; `lengths` of q and of k, `heads` of q and of k."""

    def __init__(self, lengths=(6, 6), heads=(4, 4), frozen=(), dtype=torch.float64, **options):
        self.lengths, self.heads, self.frozen, self.dtype = lengths, heads, frozen, dtype
        self.options = options

    def __call__(self, *, plainly=False):
        torch.manual_seed(0)
        sizes = list(zip(self.heads, self.lengths, strict=True))
        drawn = [torch.randn(2, *size, 5) for size in (*sizes, sizes[1])]
        q, k, v = values = [t.to(self.dtype) for t in drawn]
        parameters = [t.requires_grad_() for i, t in enumerate(values) if i not in self.frozen]
        shared = self.heads[0] != self.heads[1]

        def outputs():
            return functional.scaled_dot_product_attention(
                q, k, v, enable_gqa=shared, **self.options
            )

        return parameters, outputs


class Convolve:
    """A convolution, tanh, and another one."""

    def __init__(self, first, second, *sizes, order=torch.contiguous_format):
        self.layers, self.sizes, self.order = (first, second), sizes, order

    def __call__(self, *, plainly=False):
        torch.manual_seed(0)
        first, second = (make().double() for make in self.layers)
        x = torch.randn(self.sizes, dtype=torch.float64).contiguous(memory_format=self.order)
        return [*first.parameters(), *second.parameters()], lambda: second(first(x).tanh())


class Normed:
    """A layer under weight norm, by torch's fused kernel or `plainly`."""

    def __init__(self, dim):
        self.dim = dim

    def __call__(self, *, plainly=False):
        torch.manual_seed(0)
        x, layer = torch.randn(5, 3).double(), nn.Linear(3, 4).double()
        weight_norm(layer, dim=self.dim)
        bias, g, v = layer.parameters()

        def plain():
            over = v.square().sum(1 - self.dim, keepdim=True)
            return functional.linear(x, v * g / over.sqrt(), bias)

        return [bias, g, v], plain if plainly else lambda: layer(x)


class Bag:
    """Rows [0, 1], [2] and [2, 4, 2], added up or averaged, by torch's kernel or `plainly`."""

    ROWS = ([0, 1], [2], [2, 4, 2])

    def __init__(self, **options):
        self.options = options

    def __call__(self, *, plainly=False):
        torch.manual_seed(0)
        bag = nn.EmbeddingBag(5, 3, **self.options).double()
        ends = [0, 2, 3, 6] if bag.include_last_offset else [0, 2, 3]
        indices = torch.tensor([i for rows in self.ROWS for i in rows])

        def plain():
            kept = [[i for i in rows if i != bag.padding_idx] for rows in self.ROWS]
            parts = [bag.weight[rows] for rows in kept]
            added = [p.mean(0) if bag.mode == "mean" and len(p) else p.sum(0) for p in parts]
            return torch.stack(added)

        outputs = plain if plainly else lambda: bag(indices, torch.tensor(ends))
        return [bag.weight], outputs


class Smooth:
    """A layer, an operation that torch differentiates twice, and another layer."""

    def __init__(self, operation, *sizes, order=torch.contiguous_format):
        self.operation, self.sizes, self.order = operation, sizes or (5, 3), order

    def __call__(self, *, plainly=False):
        torch.manual_seed(0)
        x = torch.randn(self.sizes, dtype=torch.float64).contiguous(memory_format=self.order)
        operation = self.operation
        first = nn.Linear(self.sizes[-1], 4).double()
        own = list(operation.parameters()) if isinstance(operation, nn.Module) else []
        return [*first.parameters(), *own], lambda: operation(first(x))


def _normed(layer, train=True, **options):
    """A normalisation with weights that are not one, as in mid-training."""
    torch.manual_seed(2)
    made = layer(**options).double().train(train)
    for parameter in made.parameters():
        nn.init.normal_(parameter)
    return made


def _conv(n, *args, kind="Conv", **options):
    return lambda: getattr(nn, f"{kind}{n}d")(*args, **options)


SEEN = torch.ones(6, 6, dtype=torch.bool).tril()
SEEN[2] = False  # one place may see nothing
CASES = {
    "attention": Attend(),
    "attention, causal": Attend(is_causal=True),
    "attention, causal, lengths differ": Attend(lengths=(4, 7), is_causal=True),
    "attention, seen": Attend(attn_mask=SEEN),
    "attention, biased": Attend(attn_mask=torch.linspace(-2, 2, 36).double().view(6, 6)),
    "attention, scaled": Attend(scale=0.3),
    "attention, heads shared": Attend(heads=(4, 2)),
    "attention, queries alone": Attend(frozen=(1, 2)),
    "attention, values frozen": Attend(frozen=(2,), is_causal=True),
    **{f"weight norm, {dim}": Normed(dim) for dim in (0, 1)},
    "bags of sums": Bag(mode="sum"),
    "bags of means": Bag(mode="mean"),
    "bags, padded": Bag(mode="mean", padding_idx=2),
    "bags, the end told": Bag(mode="sum", include_last_offset=True),
    "gelu": Smooth(nn.GELU()),
    "gelu by tanh": Smooth(nn.GELU(approximate="tanh")),
    "log-softmax": Smooth(nn.LogSoftmax(-1)),
    "log-softmax, over cases": Smooth(nn.LogSoftmax(0)),
    "batch norm": Smooth(_normed(nn.BatchNorm1d, num_features=4)),
    "batch norm, large eps": Smooth(_normed(nn.BatchNorm1d, num_features=4, eps=0.5)),
    "batch norm, no weights": Smooth(_normed(nn.BatchNorm1d, num_features=4, affine=False)),
    "batch norm of images": Smooth(_normed(nn.BatchNorm2d, num_features=3), 2, 3, 5, 6),
    "batch norm, channels last": Smooth(
        _normed(nn.BatchNorm2d, num_features=3), 2, 3, 5, 6, order=torch.channels_last
    ),
    "instance norm": Smooth(nn.InstanceNorm1d(3), 2, 3, 6),
    "convolution": Convolve(_conv(2, 3, 4, 3), _conv(2, 4, 5, 3, padding=1), 2, 3, 7, 7),
    "convolution, 1d": Convolve(_conv(1, 3, 4, 3), _conv(1, 4, 5, 3, bias=False), 2, 3, 9),
    "convolution, 3d": Convolve(_conv(3, 2, 4, 3), _conv(3, 4, 2, 1), 2, 2, 5, 5, 5),
    "convolution, strided": Convolve(
        _conv(2, 3, 4, 3, stride=2), _conv(2, 4, 5, 3, dilation=2, padding="same"), 2, 3, 9, 9
    ),
    "convolution, grouped": Convolve(
        _conv(2, 3, 4, 1),
        _conv(2, 4, 8, 3, groups=4, padding_mode="circular", padding=1), 2, 3, 5, 5,
    ),
    "convolution, transposed": Convolve(
        _conv(2, 3, 4, 3, kind="ConvTranspose", stride=2, output_padding=1),
        _conv(2, 4, 6, 3, kind="ConvTranspose", groups=2), 2, 3, 4, 4,
    ),
    "convolution, channels last": Convolve(
        _conv(2, 3, 4, 3), _conv(2, 4, 5, 3), 2, 3, 7, 7, order=torch.channels_last
    ),
    "convolution, one image": Convolve(_conv(2, 3, 4, 3), _conv(2, 4, 5, 3), 3, 7, 7),
}  # fmt: skip


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


@pytest.mark.parametrize("name", ["convolution", "attention"])
def test_somebody_elses_hook_is_not_undone(name):
    """A hook of a node that doubles what leaves: its derivative is doubled, or there is none."""

    def doubled(run):
        outputs = run()
        double = lambda leaving, _: tuple(None if g is None else 2 * g for g in leaving)  # noqa: E731
        outputs.grad_fn.register_hook(double)
        return outputs

    hessian, parameters, loss = _hessian(CASES[name], through=doubled)
    (vectors,) = _vectors(parameters, 1)
    if name == "attention":
        with pytest.raises(RuntimeError, match="not implemented"):
            hessian(vectors)
        return
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
    "case", [Attend(dropout_p=0.5), Bag(mode="max"), Bag(scale_grad_by_freq=True)]
)
def test_what_is_not_known_is_left_to_torch(case):
    hessian, *_ = _hessian(case)
    assert not _is_ours(hessian)
