"""`probe(loss, backward=True)` is `probe(loss)` and `loss.backward()`, with one gradient."""

import gc
import weakref

import pytest
import torch
from torch import nn

from equilibrate import ESGD, JacobiSGD
from tests.optim.laws import assert_same

OFTEN = {"lr": 0.01, "probe_every": 2, "warmup_probes": 3}


def _step(optimizer, losses, joined):
    for loss in losses:
        value = loss()
        if joined:
            optimizer.probe(value, backward=True)
        else:
            optimizer.probe(value)
            value.backward()
    optimizer.step()
    optimizer.zero_grad()


def _ends(case, joined, kind=ESGD, parts=1, hooked=False, **options):
    parameters, loss = case.parameters_and_loss()
    calls = []
    if hooked:
        parameters[0].register_hook(calls.append)
        parameters[-1].register_post_accumulate_grad_hook(calls.append)
    optimizer = kind(parameters, **OFTEN | options)
    for _ in range(7):
        _step(optimizer, [loss] * parts, joined)
    return [p.detach() for p in parameters], len(calls)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"kind": JacobiSGD},
        {"parts": 3},
        {"warmup_probes": 1, "probe_every": 1},
        {"hooked": True},
    ],
    ids=str,
)
def test_the_path_is_the_same_to_the_bit(case, options):
    joined, separate = _ends(case, True, **options), _ends(case, False, **options)
    assert_same(joined[0], separate[0])
    assert joined[1] == separate[1]


VIEWS = {
    "squeezed": lambda errors: errors.mean(0, keepdim=True).squeeze(),
    "chosen": lambda errors: torch.stack([errors.mean(), errors.sum()])[0],
    "reshaped": lambda errors: errors.mean().view(1),
}


@pytest.mark.parametrize("view", VIEWS)
def test_a_loss_that_is_a_view_is_backpropagated_too(view):
    """torch detaches no view in place."""
    ends = []
    for joined in (True, False):
        weight = nn.Parameter(torch.tensor([1.0, 2.0]))
        optimizer = ESGD([weight], **OFTEN)
        for _ in range(5):
            _step(optimizer, [lambda weight=weight: VIEWS[view](weight**4)], joined)
        ends.append(weight.detach())
    assert_same([ends[0]], [ends[1]])


@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, None], ids=str)
def test_the_gradient_has_the_dtype_that_the_parameter_asks_for(dtype, parts):
    gradients, ends = [], []
    for joined in (True, False):
        weight = nn.Parameter(torch.tensor([1.0, 2.0, 3.0], dtype=torch.bfloat16))
        weight.grad_dtype = dtype  # None: whatever comes
        optimizer = ESGD([weight], **OFTEN)
        optimizer.register_step_pre_hook(lambda *_, w=weight: gradients.append(w.grad.clone()))
        for _ in range(5):
            _step(optimizer, [lambda weight=weight: (weight.float() ** 4).sum()] * parts, joined)
        ends.append(weight.detach())
    assert_same(gradients[:5] + ends[:1], gradients[5:] + ends[1:])


def test_other_leaves_get_their_gradient_too():
    """A parameter of another optimizer, and an input that wants one."""
    one, other = (nn.Parameter(torch.tensor([1.0, 2.0])) for _ in range(2))
    optimizer = ESGD([one])
    optimizer.probe((one**3 * other).sum(), backward=True)
    assert_same([one.grad, other.grad], [torch.tensor([3.0, 24.0]), torch.tensor([1.0, 8.0])])


def test_gradients_of_two_parameters_do_not_share_memory():
    one, other = (nn.Parameter(torch.tensor([1.0, 2.0])) for _ in range(2))
    ESGD([one, other]).probe(((one + other) ** 3).sum(), backward=True)
    assert one.grad.data_ptr() != other.grad.data_ptr()


def test_one_gradient_is_computed_less():
    counts = []
    for joined in (False, True):
        model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 1))
        x = torch.randn(3, 4)
        optimizer = ESGD(model.parameters(), probe_every=1, warmup_probes=1)
        with torch.profiler.profile() as profile:
            _step(optimizer, [lambda model=model, x=x: model(x).square().mean()], joined)
        products = ("aten::mm", "aten::addmm")
        counts.append(sum(e.count for e in profile.key_averages() if e.key in products))
    assert counts[0] - counts[1] == 3  # the matrix products of one backward pass


def test_the_graph_is_freed_at_once_though_the_loss_is_kept():
    weight = nn.Parameter(torch.ones(3))
    optimizer = ESGD([weight], **OFTEN)
    inner = weight.exp()  # saves its own result for the backward pass
    kept = weakref.ref(inner)
    loss = (inner * inner).sum()
    del inner
    assert kept() is not None
    assert optimizer.probe(loss, backward=True)
    gc.collect()
    assert kept() is None
    assert not loss.requires_grad
    with pytest.raises(ValueError, match="must be live"):
        optimizer.probe(loss)


def test_where_no_probe_is_due_it_is_a_plain_backward():
    weight = nn.Parameter(torch.ones(3))
    optimizer = ESGD([weight], **OFTEN)
    _step(optimizer, [lambda: (weight**3).sum()], True)
    loss = (weight**3).sum()
    assert not optimizer.probe(loss, backward=True)
    assert_same([weight.grad], [3 * weight.detach() ** 2])
