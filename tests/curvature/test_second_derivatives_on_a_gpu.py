"""Our own second derivatives behind the kernels of a GPU, against torch's of what is written out.

In float64 for all but attention, whose fused kernels know narrower types alone: there against the
exact product of the same numbers, with an error of the size of that of torch's plain kernel.
"""

import pytest
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right

from equilibrate.curvature import LossHessian
from equilibrate.curvature.graph import nodes
from equilibrate.curvature.second_derivatives import REPLACE
from tests.curvature.replaced import CASES, SEEN, Attend

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]


@pytest.fixture(autouse=True)
def _small_ones_too(monkeypatch):
    monkeypatch.setattr("equilibrate.curvature.second_derivatives._FROM", 0)


@pytest.fixture(autouse=True)
def _on_the_gpu():
    with torch.device("cuda"):
        yield


def _made(case, *, plainly=False, kernel=None):
    with sdpa_kernel(kernel or SDPBackend.MATH):
        parameters, outputs = case(plainly=plainly)
        return outputs().double().sin().square().sum(), parameters


def _vectors(parameters, count=1):
    torch.manual_seed(1)
    return [[torch.randn_like(p) for p in parameters] for _ in range(count)]


def _is_ours(hessian):
    return any(
        n.name() == "_KnownBackward" for g in hessian.live if g is not None for n in nodes(g)
    )


@pytest.mark.parametrize("name", [name for name in CASES if not name.startswith("attention")])
def test_products_are_those_of_torch_one_and_several_at_once(name, monkeypatch):
    loss, parameters = _made(CASES[name])
    hessian = LossHessian(loss, parameters)
    assert _is_ours(hessian)
    vectors = _vectors(parameters, 2)
    found = [hessian(v) for v in vectors]
    stacked = hessian([torch.stack(pair) for pair in zip(*vectors, strict=True)], stacked=True)
    monkeypatch.setattr("equilibrate.curvature.second_derivatives.REPLACE", {})
    plain = LossHessian(*_made(CASES[name], plainly=True))
    assert not _is_ours(plain)
    # As on a CPU; the kernel of weight norm there takes its root in float32 whatever it is given.
    bound = 1e-6 if "weight norm" in name else 1e-12
    near = {"rtol": bound, "atol": bound}
    expected = [plain(v) for v in vectors]
    torch.testing.assert_close(found, expected, **near)
    torch.testing.assert_close([list(p) for p in zip(*stacked, strict=True)], expected, **near)


FLASH, EFFICIENT, CUDNN = (
    SDPBackend.FLASH_ATTENTION,
    SDPBackend.EFFICIENT_ATTENTION,
    SDPBackend.CUDNN_ATTENTION,
)
HALF, BFLOAT, FLOAT = torch.float16, torch.bfloat16, torch.float32
BIAS = torch.linspace(-2, 2, 36).view(6, 6)
SEEN_BY_ALL = torch.ones(6, 6, dtype=torch.bool).tril()
OF_HEADS = torch.linspace(-2, 2, 144).view(1, 4, 6, 6)
KERNELS = {
    "flash": (FLASH, HALF, {}),
    "flash, bfloat16": (FLASH, BFLOAT, {}),
    "flash, causal": (FLASH, HALF, {"is_causal": True}),
    "flash, scaled": (FLASH, HALF, {"scale": 0.3}),
    "flash, lengths differ": (FLASH, HALF, {"lengths": (4, 7)}),
    "flash, causal from the lower right": (
        FLASH, HALF, {"lengths": (4, 7), "attn_mask": causal_lower_right(4, 7)},
    ),
    "flash, heads shared": (FLASH, HALF, {"heads": (4, 2)}),
    "flash, an odd width": (FLASH, HALF, {"width": 5}),
    "flash, values frozen": (FLASH, HALF, {"frozen": (2,)}),
    "efficient": (EFFICIENT, FLOAT, {}),
    "efficient, float16": (EFFICIENT, HALF, {}),
    "efficient, causal": (EFFICIENT, FLOAT, {"is_causal": True}),
    "efficient, causal, lengths differ": (
        EFFICIENT, FLOAT, {"lengths": (4, 7), "is_causal": True},
    ),
    "efficient, seen": (EFFICIENT, FLOAT, {"attn_mask": SEEN_BY_ALL}),
    "efficient, nothing seen": (EFFICIENT, FLOAT, {"attn_mask": SEEN}),
    "efficient, biased": (EFFICIENT, FLOAT, {"attn_mask": BIAS}),
    "efficient, biased by heads": (EFFICIENT, FLOAT, {"attn_mask": OF_HEADS}),
    "efficient, scaled": (EFFICIENT, FLOAT, {"scale": 0.3}),
    "efficient, queries alone": (EFFICIENT, FLOAT, {"frozen": (1, 2)}),
    "cudnn": (CUDNN, HALF, {}),
    "cudnn, bfloat16": (CUDNN, BFLOAT, {}),
    "cudnn, causal": (CUDNN, HALF, {"is_causal": True}),
    "cudnn, biased": (CUDNN, HALF, {"attn_mask": BIAS}),
    "cudnn, heads shared": (CUDNN, HALF, {"heads": (4, 2)}),
}  # fmt: skip


def _product(kernel, dtype, options, vectors=None):
    case = Attend(**{"dtype": dtype, "width": 16, **options})
    loss, parameters = _made(case, kernel=kernel)
    hessian = LossHessian(loss, parameters)
    drawn = vectors or _vectors(parameters)[0]
    return hessian([v.to(dtype) for v in drawn]), drawn, _is_ours(hessian), hessian.gradients


def _error(found, exact):
    return max(((f - e).norm() / e.norm()).item() for f, e in zip(found, exact, strict=True))


class Rounded(Attend):
    """The exact attention of numbers that were rounded to a type."""

    def __init__(self, to, **options):
        super().__init__(**{"width": 16, **options})
        self.to = to

    def __call__(self, *, plainly=False):
        parameters, outputs = super().__call__()
        with torch.no_grad():
            for p in parameters:
                p.copy_(p.to(self.to))
        return parameters, outputs


@pytest.mark.parametrize("name", KERNELS)
def test_attention_loses_no_more_than_torchs_plain_kernel(name):
    kernel, dtype, options = KERNELS[name]
    found, vectors, ours, gradients = _product(kernel, dtype, options)
    assert ours
    plain, _, theirs, _ = _product(SDPBackend.MATH, dtype, options, vectors)
    assert not theirs
    exact = LossHessian(*_made(Rounded(dtype, **options)))
    wanted = exact([v.double() for v in vectors])
    # What arrives from behind was rounded by the fused kernel, as its gradients are.
    own = _error(gradients, exact.gradients)
    assert _error(found, wanted) <= 1.5 * _error(plain, wanted) + 2 * own


@pytest.mark.parametrize("options", [{"dropout_p": 0.5}, {"attn_mask": BIAS}])
def test_dropout_and_learned_masks_are_left_to_torch(options):
    learned = [t.cuda().requires_grad_() for t in options.values() if isinstance(t, torch.Tensor)]
    given = dict(zip(options, learned, strict=True)) if learned else options
    loss, parameters = _made(Attend(dtype=FLOAT, width=16, **given), kernel=EFFICIENT)
    hessian = LossHessian(loss, [*parameters, *learned])
    assert not _is_ours(hessian)
    with pytest.raises(RuntimeError, match="not implemented"):
        hessian(_vectors([*parameters, *learned])[0])


def _kind(node):
    return type(node).__name__


def test_these_kernels_are_behind_what_was_tested():
    """All names of a GPU's own were met, under the settings of these tests."""
    met = set()
    for kernel, dtype in ((FLASH, HALF), (EFFICIENT, FLOAT), (CUDNN, HALF)):
        met |= set(map(_kind, nodes(_made(Attend(dtype=dtype, width=16), kernel=kernel)[0])))
    met |= set(map(_kind, nodes(_made(CASES["batch norm of images"])[0])))
    own = {name for name in REPLACE if "Cudnn" in name or "Attention" in name}
    assert own - {"ScaledDotProductFlashAttentionForCpuBackward0"} <= met
