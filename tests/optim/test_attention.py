"""Attention: probed by its fast kernel on a CPU; `math_attention` takes the MATH kernel if due."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.checkpoint import checkpoint

from equilibrate import ESGD, math_attention


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inward = nn.Linear(8, 24)
        self.outward = nn.Linear(8, 8)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (2, 4)).transpose(1, 2) for t in self.inward(x).chunk(3, -1))
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.outward(mixed.transpose(1, 2).flatten(2))


def _problem():
    torch.manual_seed(0)
    model = Attention()
    x = torch.randn(4, 6, 8)
    return model, lambda: (model(x) - x.roll(1, 1)).square().mean()


def _uses_fused(loss):
    seen, waiting = set(), [loss.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is not None and node not in seen:
            seen.add(node)
            waiting += [following for following, _ in node.next_functions]
    return any("ScaledDotProduct" in node.name() for node in seen)


def _train(context, steps=9):
    model, loss = _problem()
    optimizer = ESGD(model.parameters(), lr=0.01, probe_every=4)
    fused = []
    for _ in range(steps):
        with context(optimizer):
            value = loss()
        fused.append(_uses_fused(value))
        optimizer.probe(value)
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
    return fused, [p.detach() for p in model.parameters()]


def test_ordinary_steps_keep_the_fast_kernel_and_train_the_same():
    fused, parameters = _train(math_attention)
    assert fused == [False, True, True, True, False, True, True, True, False]
    slow, expected = _train(lambda _: sdpa_kernel(SDPBackend.MATH))
    assert not any(slow)
    # The kernels differ by some roundings in each pass; the steps amplify them some hundred times.
    torch.testing.assert_close(parameters, expected, rtol=1e-4, atol=1e-5)


def test_without_it_every_step_keeps_the_fast_kernel_and_trains_the_same():
    fused, parameters = _train(lambda _: nullcontext())
    assert all(fused)
    _, expected = _train(lambda _: sdpa_kernel(SDPBackend.MATH))
    torch.testing.assert_close(parameters, expected, rtol=1e-4, atol=1e-5)  # as above


def test_in_a_checkpoint_the_errors_lead_to_what_works():
    model, loss = _problem()
    optimizer = ESGD(model.parameters())
    with pytest.raises(RuntimeError, match=r"equilibrate\.math_attention\(optimizer\).* and with"):
        optimizer.probe(checkpoint(loss, use_reentrant=False))
    with math_attention(optimizer):
        value = checkpoint(loss, use_reentrant=False)
    with pytest.raises(
        RuntimeError, match=r"Put optimizer\.probe\(loss\) and loss\.backward\(\) in"
    ):
        optimizer.probe(value)
    with math_attention(optimizer):
        value = checkpoint(loss, use_reentrant=False)
        optimizer.probe(value)
        value.backward()
    kept = ESGD(model.parameters())
    kept.probe(loss())
    for each in (optimizer, kept):
        each.step()
    # One product by either kernel: sums in another order, as in the passes before.
    torch.testing.assert_close(optimizer.diagonal(), kept.diagonal(), rtol=1e-4, atol=1e-5)


def test_an_optimizer_that_never_probes_is_refused():
    layer = nn.Linear(2, 1)
    other = torch.optim.AdamW(layer.parameters())
    with (
        pytest.raises(TypeError, match=r"AdamW never probes.*SDPBackend\.MATH"),
        math_attention(other),
    ):
        pass


def test_a_parameter_not_measured_yet_keeps_the_slow_kernel():
    """Any pass may be the first to reach it, and is then measured."""
    model, loss = _problem()
    late = nn.Parameter(torch.ones(()))
    optimizer = ESGD([*model.parameters(), late], lr=0.01, probe_every=50)
    for step in range(4):
        with math_attention(optimizer):
            value = loss() + ((late * 2).cos() if step == 2 else 0)
        measured = optimizer.probe(value)
        assert measured == (step in (0, 2))
        assert _uses_fused(value) == (step == 3)
        value.backward()
        optimizer.step()
        optimizer.zero_grad()
