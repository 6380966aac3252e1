"""The monitor beside a training run: nothing changes, and trouble is told, not raised."""

import math
import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from equilibrate import ESGD
from equilibrate.monitor import Monitor
from tests.monitor.watched import EVERY_OPTIMIZER, small_model
from tests.optim.watching import same


def _train(make, watch, steps=6):
    model = small_model()
    optimizer = make(model.parameters())
    monitor = watch(model, optimizer)
    torch.manual_seed(1)
    losses = []
    for _ in range(steps):
        x = torch.randn(16, 6)
        loss = (model(x) - x[:, :3]).square().mean()
        if hasattr(optimizer, "probe"):
            optimizer.probe(loss)
        monitor(loss)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return {
        "model": dict(model.state_dict()),
        "optimizer": optimizer.state_dict(),
        "losses": losses,
        "random": torch.get_rng_state(),
    }


@EVERY_OPTIMIZER
def test_a_run_with_the_monitor_at_every_step_is_the_same_to_the_bit(make):
    seen = []

    def watched(model, optimizer):
        return Monitor(model, optimizer, seen.append, every=1, budget=None, layer_spectra=2)

    alone = _train(make, lambda model, optimizer: lambda loss: None)
    beside = _train(make, watched)
    assert [record["step"] for record in seen] == list(range(6))
    assert all("sharpness" in record for record in seen)
    assert same(alone, beside)


def test_the_monitor_leaves_gradients_and_hooks_alone():
    model = small_model()
    fired = []
    for p in model.parameters():
        p.register_hook(lambda g: fired.append(1))
    loss = model(torch.randn(8, 6)).square().mean()
    monitor = Monitor(model, torch.optim.SGD(model.parameters()), lambda r: None, budget=None)
    monitor(loss)
    assert fired == []
    assert all(p.grad is None for p in model.parameters())


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1.0

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g):
        return g


def _used(model, x):
    loss = model(x).square().mean()
    loss.backward()
    return loss


def _attention(model, x):
    """In a checkpoint, where it has no second derivative on a CPU either."""
    q = model(x)[None, None]
    attend = nn.functional.scaled_dot_product_attention
    return checkpoint(attend, q, q, q, use_reentrant=False).square().mean()


def _attention_leaving_its_context(model, x):
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        return _attention(model, x)


def _compiled(model, x):
    return torch.compile(model, backend="aot_eager")(x).square().mean()


def _scaled(model, x):
    return torch.amp.GradScaler("cpu").scale(model(x).square().mean())


def _scaled_in_parts(model, x):
    scaler = torch.amp.GradScaler("cpu")
    return scaler.scale(model(x).square().mean()) / 4 + scaler.scale(model(x).square().mean()) / 4


def _scaled_and_used(model, x):
    loss = _scaled(model, x)
    loss.backward()
    return loss


def _scaled_beyond(model, x):
    return torch.amp.GradScaler("cpu", init_scale=2.0**127).scale(9 + model(x).square().mean())


# What is said, and the loss.
TROUBLED = {
    r"not finite \(nan\): the run has diverged\. Lower the learning rate": (
        lambda m, x: m(x).sum() * float("nan")
    ),
    r"not finite \(inf\): the run has diverged": lambda m, x: m(x).sum() + float("inf"),
    "once_differentiable": lambda m, x: Once.apply(m(x)).square().mean(),
    "does not depend": lambda m, x: torch.ones((), requires_grad=True) * 2,
    r"Call monitor\(loss\) before loss\.backward\(\)": _used,
    r"with torch\.nn\.attention\.sdpa_kernel\(SDPBackend\.MATH\)": _attention,
    r"Put monitor\(loss\) and loss\.backward\(\) inside": _attention_leaving_its_context,
    r"the loss of the model before torch\.compile": _compiled,
    r"65536 times too large\. Call monitor\(loss\) on the loss itself, then scaler": _scaled,
    r"This loss is scaler\.scale\(loss\), so that": _scaled_in_parts,
    r"loss was already backpropagated\. Call monitor\(loss\)": _scaled_and_used,
    r"This loss is scaler\.scale\(loss\)": _scaled_beyond,  # infinite, and no run has diverged
}
SENTENCES = r"The monitor cannot measure the curvature: .*[.!?] It goes on .*\.$"


@pytest.mark.parametrize("make", [torch.optim.AdamW, torch.optim.SGD, ESGD])
@pytest.mark.parametrize(("reason", "loss"), TROUBLED.items(), ids=TROUBLED.keys())
def test_a_loss_without_curvature_is_said_once_and_training_goes_on(reason, loss, make):
    model = nn.Linear(3, 2)
    seen = []
    monitor = Monitor(model, make(model.parameters()), seen.append, every=1, budget=None)
    with pytest.warns(UserWarning, match="cannot measure") as warned:
        list(map(monitor, [loss(model, torch.randn(4, 3)) for _ in range(3)]))
    said = str(warned[0].message)
    assert len(warned) == 1
    assert re.search(reason, said)
    assert re.fullmatch(SENTENCES, said, re.DOTALL)
    assert "optimizer.probe" not in said  # which is of no use to most
    assert [("unmeasured" in r, "sharpness" in r) for r in seen] == [(True, False)] * 3


@pytest.mark.parametrize("weight", [0.5, 3.0, 128.0, 1000.0])
def test_a_loss_s_weight_is_no_scale_of_grad_scaler(weight):
    model, seen = nn.Linear(3, 2), []
    monitor = Monitor(model, torch.optim.SGD(model.parameters()), seen.append)
    monitor(model(torch.randn(4, 3)).square().mean() * torch.tensor(weight))
    assert seen[0]["sharpness"] > 0


def test_what_fixes_attention_does():
    model, seen = nn.Linear(3, 2), []
    monitor = Monitor(model, torch.optim.SGD(model.parameters()), seen.append)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        loss = _attention(model, torch.randn(4, 3))
        monitor(loss)
    assert seen[0]["sharpness"] > 0


def test_a_run_that_diverges_later_is_sent_to_its_last_record_though_it_was_warned_before():
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters())
    monitor = Monitor(model, optimizer, lambda r: None, every=1, budget=None)
    said = []
    for reason in ("once_differentiable", next(iter(TROUBLED))):
        with pytest.warns(UserWarning, match="cannot measure") as warned:
            monitor(TROUBLED[reason](model, torch.randn(4, 3)))
        said += [str(one.message) for one in warned]
    assert ["The last record before this" in text for text in said] == [False, True]


def test_gradients_that_share_their_memory_are_read_as_two():
    """Of a sum autograd hands one tensor to both, of .sum() one number expanded; any scale."""
    distances = []
    for factor in (1.0, 2.0**80):
        a, b, c = (torch.tensor([1.0, 2.0, 3.0], requires_grad=True) for _ in range(3))
        loss = factor * ((a + b) ** 4).sum() + factor * c.sum()
        named = [("a", a), ("b", b), ("c", c)]
        optimizer = torch.optim.SGD([a, b, c])
        record = Monitor(named, optimizer, lambda r: None)(loss)
        distances.append(
            [record[f"layers/{name}/distance/equilibration_gradient"] for name in "ab"]
        )
    assert distances[0][0] == distances[0][1]
    assert distances[0] == distances[1]


WRONG_LOSS = {"float": (0.5, TypeError, "loss.item"), "vector": (torch.ones(2), ValueError, "mean")}


@pytest.mark.parametrize(("loss", "error", "words"), WRONG_LOSS.values(), ids=WRONG_LOSS.keys())
def test_what_is_no_scalar_tensor_is_refused(loss, error, words):
    model = nn.Linear(2, 1)
    with pytest.raises(error, match=words):
        Monitor(model, torch.optim.SGD(model.parameters()), print)(loss)


# What is handed over for optimizer and sink, and what the error names.
WRONG_KINDS = {
    "a path": (lambda m, o: (m, o, "run.jsonl"), r'JSONLines\("run\.jsonl"\)'),
    "another path": (lambda m, o: (m, o, Path("a.jsonl")), r'JSONLines\("a\.jsonl"\)'),
    "a list": (lambda m, o: (m, o, []), "append of a list"),
    "the order": (lambda m, o: (o, m, print), r"Monitor\(model, optimizer, sink\)"),
    "several optimizers": (lambda m, o: (m, [o, o], print), r"one optimizer, got a list.* both"),
    "no optimizer": (lambda m, o: (m, m, print), "got Linear. The order"),
    "parameters": (lambda m, o: (m.parameters(), o, print), "no names here. Pass the model"),
    "names": (lambda m, o: (["weight"], o, print), "no names here. Pass the model"),
    "no model": (lambda m, o: (3, o, print), "got int. Pass the model itself"),
}


@pytest.mark.parametrize(("given", "words"), WRONG_KINDS.values(), ids=WRONG_KINDS.keys())
def test_kinds_are_checked_when_the_monitor_is_made(given, words):
    model = nn.Linear(2, 1)
    with pytest.raises(TypeError, match=words):
        Monitor(*given(model, torch.optim.SGD(model.parameters())))


@pytest.mark.parametrize("options", [{"every": 0}, {"budget": 0.0}, {"probes": 1}, {"steps": 1}])
def test_arguments_are_checked(options):
    model = nn.Linear(2, 1)
    with pytest.raises(ValueError, match=next(iter(options))):
        Monitor(model, torch.optim.SGD(model.parameters()), print, **options)


@EVERY_OPTIMIZER
def test_awkward_parameters_are_watched(make):
    """A scalar, an empty tensor, one without a gradient; two steps, and no NaN where it counts."""
    scalar = torch.tensor(0.5, requires_grad=True)
    empty = torch.zeros(0, 3, requires_grad=True)
    unused, used = torch.ones(3, requires_grad=True), torch.rand(4, requires_grad=True)
    parameters = [scalar, empty, unused, used]
    optimizer = make(parameters)
    seen = []
    named = [("scalar", scalar), ("empty", empty), ("unused", unused), ("used", used)]
    monitor = Monitor(named, optimizer, seen.append, every=1, budget=None)
    for _ in range(2):
        loss = (scalar * used).sin().sum() + empty.sum()
        if hasattr(optimizer, "probe"):
            optimizer.probe(loss)
        monitor(loss)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    assert [record["layers/unused/share_flat"] for record in seen] == [1.0, 1.0]
    assert all(math.isfinite(record["sharpness"]) for record in seen)
    assert all(math.isfinite(record["preconditioned/sharpness"]) for record in seen)
