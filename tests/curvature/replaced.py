"""What `second_derivatives` replaces: each case gives its parameters and a function to its outputs.

Where torch has no second derivative, or a wrong one, the operation is written out `plainly`.
"""

from copy import deepcopy

import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention.bias import CausalBias, causal_lower_right
from torch.nn.utils.parametrizations import weight_norm


class Attend:
    """Attention of parameters q, k and v; `lengths` of q and of k, `heads` of q and of k."""

    def __init__(
        self, lengths=(6, 6), heads=(4, 4), frozen=(), dtype=torch.float64, width=5, cases=2,
        **options,
    ):  # fmt: skip
        self.lengths, self.heads, self.frozen, self.dtype = lengths, heads, frozen, dtype
        self.width, self.cases, self.options = width, cases, options

    def __call__(self, *, plainly=False):
        torch.manual_seed(0)
        sizes = list(zip(self.heads, self.lengths, strict=True))
        drawn = [torch.randn(self.cases, *size, self.width) for size in (*sizes, sizes[1])]
        q, k, v = values = [t.to(self.dtype) for t in drawn]
        mask = self.options.get("attn_mask")
        given = {} if mask is None else {"attn_mask": _as(mask, q)}
        parameters = [t.requires_grad_() for i, t in enumerate(values) if i not in self.frozen]
        shared = self.heads[0] != self.heads[1]

        def outputs():
            return functional.scaled_dot_product_attention(
                q, k, v, enable_gqa=shared, **{**self.options, **given}
            )

        return parameters, outputs


def _as(mask, like):
    """Return a mask where it is used; one that is added in the type that it is added to."""
    if isinstance(mask, CausalBias):  # that is made where it is used
        return mask
    return mask.to(like.device, mask.dtype if mask.dtype == torch.bool else like.dtype)


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
        operation = deepcopy(self.operation)
        first = nn.Linear(self.sizes[-1], 4).double()
        own = list(operation.to(x.device).parameters())
        return [*first.parameters(), *own], lambda: operation(first(x))


class NoColumns(nn.Module):
    """None of its input's columns."""

    def forward(self, x):
        return x[..., :0]


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
    "attention, causal from the lower right": Attend(
        lengths=(4, 7), attn_mask=causal_lower_right(4, 7)
    ),
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
    "layer norm": Smooth(_normed(nn.LayerNorm, normalized_shape=4), 2, 5, 3),
    "layer norm, large eps": Smooth(_normed(nn.LayerNorm, normalized_shape=4, eps=0.5), 5, 3),
    "layer norm, of two sides": Smooth(_normed(nn.LayerNorm, normalized_shape=(5, 4)), 3, 5, 3),
    "layer norm, of one case": Smooth(_normed(nn.LayerNorm, normalized_shape=(5, 4)), 5, 3),
    "layer norm, of nothing": Smooth(nn.Sequential(NoColumns(), nn.LayerNorm(0).double()), 5, 3),
    "layer norm, no bias": Smooth(_normed(nn.LayerNorm, normalized_shape=4, bias=False), 5, 3),
    "layer norm, no weights": Smooth(nn.LayerNorm(4, elementwise_affine=False), 5, 3),
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
