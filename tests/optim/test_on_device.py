"""fused=True and capturable=True: the same numbers as without, and no step waits for the device."""

import copy
import gc
import io
import weakref
from functools import partial

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from equilibrate import ESGD, JacobiSGD
from equilibrate.kernels import capture, cpp
from equilibrate.optim import settling
from equilibrate.rules import fused, on_device
from tests.cases import CASES
from tests.optim.laws import AMPLIFIED, assert_near, assert_same
from tests.optim.loops import train, train_accumulated

WAYS = {"fused": {"fused": True}, "capturable": {"capturable": True},
        "both": {"fused": True, "capturable": True}}  # fmt: skip
SETTINGS = {
    "ESGD": (ESGD, {}),
    "Nesterov": (ESGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1}),
    "growth": (ESGD, {"momentum": 0.9, "growth_limit": 1.01, "lr": 0.05}),
    "mean floor": (ESGD, {"momentum": 0.9, "mean_floor": True, "weight_decay": 0.1}),
    "mean, normals": (ESGD, {"decay": None, "distribution": "gaussian"}),
    "initial": (ESGD, {"damping_kind": "initial", "damping": 0.3, "mean_floor": True}),
    "absolute": (ESGD, {"damping_kind": "absolute", "damping": 0.1, "maximize": True}),
    "Jacobi": (JacobiSGD, {"damping": 1.0, "momentum": 0.5}),
}
OFTEN = {"lr": 0.005, "warmup_probes": 3, "probe_every": 2}

over_ways = pytest.mark.parametrize("way", WAYS)


@pytest.fixture(autouse=True)
def _traced(monkeypatch):
    """Compile as for real, but run torch's own kernels: building C++ takes seconds a case."""
    monkeypatch.setattr(fused, "compiled", partial(fused.compiled, "aot_eager"))
    yield
    torch._dynamo.reset()


class Forbidden(TorchDispatchMode):
    """Raise where the host asks the device for a number, or copies one there."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        name = function.__name__.split(".")[0]
        if name in ("_local_scalar_dense", "item", "equal", "is_nonzero"):
            raise AssertionError(f"a step waits for the device: {function}")
        return function(*args, **(kwargs or {}))


def _ends(case, kind, options, steps=9, groups=False):
    parameters, loss = case.parameters_and_loss()
    given = parameters
    if groups:
        given = [{"params": parameters[::2], "lr": 0.01, "probe_every": 3}]
        given += [{"params": parameters[1::2], "decay": 0.9}] if parameters[1::2] else []
    optimizer = kind(given, **OFTEN | options)
    train(optimizer, loss, steps)
    return [p.detach() for p in parameters], optimizer


@over_ways
@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("case", CASES[:1] + CASES[2:4], ids=lambda case: case.name)
def test_the_path_is_that_of_the_reference(case, setting, way):
    kind, options = SETTINGS[setting]
    plain, _ = _ends(case, kind, options | {"foreach": False})
    found, optimizer = _ends(case, kind, options | WAYS[way])
    assert_near(found, plain, AMPLIFIED)
    assert optimizer._settled


@over_ways
@pytest.mark.parametrize("case", CASES[2:4], ids=lambda case: case.name)
def test_groups_keep_their_own_settings(way, case):
    plain, _ = _ends(case, ESGD, {}, groups=True)
    found, _ = _ends(case, ESGD, WAYS[way], groups=True)
    assert_near(found, plain, AMPLIFIED)


@over_ways
@pytest.mark.parametrize("kind", [ESGD, JacobiSGD])
@pytest.mark.parametrize("probing", [False, True])
def test_no_step_waits_for_the_device(kind, way, probing, monkeypatch):
    """After the first steps: neither probe nor step, in a probing iteration or an ordinary one."""
    # As on a device that the host waits for; and not compiled: one mode cannot watch the other.
    monkeypatch.setattr(capture, "is_host", lambda device: False)
    monkeypatch.setattr(fused, "compiled", lambda name: getattr(on_device, name))
    parameters, loss = CASES[2].parameters_and_loss()
    lr = torch.tensor(0.005)
    optimizer = kind(parameters, **OFTEN | WAYS[way] | {"lr": lr, "momentum": 0.5})
    train(optimizer, loss, 4)
    while optimizer.probe_due != probing:
        train(optimizer, loss, 1)
    value = loss()
    with Forbidden():
        assert optimizer.probe(value) == probing
    value.backward()
    with Forbidden():
        optimizer.step()
    optimizer.zero_grad()


def test_the_watch_itself_sees_an_ordinary_optimizer_wait():
    parameters, loss = CASES[0].parameters_and_loss()
    optimizer = ESGD(parameters, **OFTEN | {"probe_every": 1})
    train(optimizer, loss, 2)
    value = loss()
    optimizer.probe(value)
    value.backward()
    with Forbidden(), pytest.raises(AssertionError, match="waits for the device"):
        optimizer.step()


@over_ways
@pytest.mark.parametrize("how", ["state_dict", "deepcopy"])
def test_resuming_goes_on_bit_for_bit(how, way):
    case = CASES[2]
    straight, _ = _ends(case, ESGD, WAYS[way], steps=12)
    parameters, loss = case.parameters_and_loss()
    first = ESGD(parameters, **OFTEN | WAYS[way])
    train(first, loss, 6)
    if how == "deepcopy":
        parameters, second = copy.deepcopy((parameters, first))
        _, function = case.values_and_function()
        train(second, lambda: function(parameters), 6)
    else:
        file = io.BytesIO()
        torch.save(first.state_dict(), file)
        file.seek(0)
        second = ESGD(parameters, **OFTEN | WAYS[way])
        second.load_state_dict(torch.load(file, weights_only=True))
        train(second, loss, 6)
    assert_same([p.detach() for p in parameters], straight)


def test_a_plain_state_goes_on_on_the_device_and_back():
    case = CASES[2]
    plain, _ = _ends(case, ESGD, {}, steps=12)
    parameters, loss = case.parameters_and_loss()
    optimizer = ESGD(parameters, **OFTEN)
    for flag in (True, False, True, False):
        state = optimizer.state_dict()
        state["param_groups"][0]["capturable"] = flag
        optimizer = ESGD(parameters, **OFTEN, capturable=flag)
        optimizer.load_state_dict(state)
        train(optimizer, loss, 3)
        numbers = optimizer.state[parameters[0]]
        assert isinstance(numbers["weight"], torch.Tensor) == flag
    assert_near([p.detach() for p in parameters], plain, AMPLIFIED)


@over_ways
def test_half_precision_keeps_its_numbers_in_double(way):
    torch.manual_seed(0)
    weight = nn.Parameter(torch.randn(50, dtype=torch.bfloat16))
    optimizer = ESGD([weight], **OFTEN | WAYS[way])
    loss = lambda: (weight.float() ** 4).sum()  # noqa: E731
    train(optimizer, loss, 5)
    optimizer.load_state_dict(optimizer.state_dict())
    train(optimizer, loss, 5)
    state = optimizer.state[weight]
    assert state["weight"].dtype == state["scale"].dtype == torch.float64
    assert state["diagonal"].dtype == torch.float32
    assert int(state["probes"]) == 3 + 4
    assert float(state["step"]) == 10


@over_ways
@pytest.mark.parametrize("shape", [(50,), (5, 10), ()], ids=str)
def test_a_gradient_of_another_dtype_is_taken(way, shape):
    """As `grad_dtype` asks for: a bfloat16 parameter whose gradient is in float32."""
    ends = []
    for options in ({}, WAYS[way]):
        torch.manual_seed(0)
        weight = nn.Parameter(torch.randn(shape, dtype=torch.bfloat16))
        weight.grad_dtype = torch.float32
        train(ESGD([weight], **OFTEN | options), lambda w=weight: (w.float() ** 4).sum(), 6)
        ends.append(weight.detach())
    assert_near([ends[1]], [ends[0]], 2)


@over_ways
def test_a_product_that_is_not_finite_is_dropped_and_told_later(way):
    weight = nn.Parameter(torch.ones(3))
    optimizer = ESGD([weight], **OFTEN | WAYS[way] | {"probe_every": 1})
    train(optimizer, lambda: (weight**4).sum(), 3)
    before, probes = optimizer.diagonal(), int(optimizer.state[weight]["probes"])
    value = (weight**4).sum() + (weight - weight.detach()).abs().sqrt().sum() * 0.0
    optimizer.probe(value)
    (weight**2).sum().backward()
    optimizer.step()
    assert int(optimizer.param_groups[0]["dropped_probes"]) == 1
    assert int(optimizer.state[weight]["probes"]) == probes
    with pytest.warns(UserWarning, match="1 curvature products were not finite"):
        assert_same(optimizer.diagonal(), before)
    assert bool(weight.isfinite().all())


@over_ways
def test_micro_batches_and_a_late_group(way):
    """Accumulated losses, and a parameter that joins and is measured with plain numbers first."""
    ends = []
    for options in ({}, WAYS[way]):
        torch.manual_seed(0)
        weights = [nn.Parameter(torch.randn(4, dtype=torch.float64)) for _ in range(2)]
        optimizer = ESGD(weights[:1], **OFTEN | options)
        half = lambda w=weights[0]: (w**4).sum() / 2  # noqa: E731
        train_accumulated(optimizer, [half, half], 5)
        optimizer.add_param_group({"params": weights[1:]})
        train(optimizer, lambda w=weights: ((w[0] * w[1]) ** 4).sum(), 7)
        ends.append([w.detach() for w in weights])
    assert_near(ends[1], ends[0], AMPLIFIED)


def test_fused_with_foreach_is_refused():
    with pytest.raises(ValueError, match="Invalid fused: True with foreach=True"):
        ESGD([nn.Parameter(torch.ones(2))], fused=True, foreach=True)


@pytest.fixture
def not_built():
    cpp.library.cache_clear()
    yield
    cpp.library.cache_clear()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_missing_compiler_is_named(dtype, monkeypatch, not_built):
    def fails(*arguments, **options):
        raise torch._dynamo.exc.BackendCompilerFailed(
            partial(print), RuntimeError("no compiler"), None
        )

    monkeypatch.setattr(fused, "compiled", lambda name: fails)
    monkeypatch.setattr("torch._inductor.codecache.CppCodeCache.load", fails)
    weight = nn.Parameter(torch.ones(2, dtype=dtype))
    optimizer = ESGD([weight], fused=True)
    with pytest.raises(RuntimeError, match="needs a C\\+\\+ compiler"):
        train(optimizer, lambda: (weight**4).sum(), 1)


@over_ways
def test_parameters_on_several_devices_are_refused(way):
    here, there = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2, device="meta"))
    optimizer = ESGD([here, there], **WAYS[way])
    with pytest.raises(RuntimeError, match="lie on several devices"):
        train(optimizer, lambda: (here**4).sum(), 1)


@over_ways
def test_sharded_parameters_are_refused(way, monkeypatch):
    monkeypatch.setattr(settling, "is_sharded", lambda parameter: True)
    weight = nn.Parameter(torch.ones(2))
    with pytest.raises(RuntimeError, match="these parameters are sharded"):
        train(ESGD([weight], **WAYS[way]), lambda: (weight**4).sum(), 1)


def _copied(state):
    return {k: v.clone() if isinstance(v, torch.Tensor) else v for k, v in state.items()}


def _moved_in_place(optimizer):
    for state in optimizer.state.values():
        state.update(_copied(state))


def _moved_but_for_the_step(optimizer):
    for state in optimizer.state.values():
        state.update({k: v for k, v in _copied(state).items() if k != "step"})


def _moved_into_new_dicts(optimizer):
    for p, state in optimizer.state.items():
        optimizer.state[p] = _copied(state)


MOVES = [_moved_in_place, _moved_but_for_the_step, _moved_into_new_dicts]


@over_ways
@pytest.mark.parametrize("move", MOVES)
@pytest.mark.parametrize("steps", [4, 5], ids=["before a probe", "before an ordinary step"])
def test_a_state_that_was_moved_to_another_device_and_back_goes_on(way, move, steps):
    """As trainers do that make room on a GPU: the numbers are then copies."""
    case = CASES[2]
    straight, undisturbed = _ends(case, ESGD, WAYS[way] | {"momentum": 0.9}, steps=10)
    parameters, loss = case.parameters_and_loss()
    optimizer = ESGD(parameters, **OFTEN | WAYS[way] | {"momentum": 0.9})
    train(optimizer, loss, steps)
    move(optimizer)
    train(optimizer, loss, 10 - steps)
    assert_same([p.detach() for p in parameters], straight)
    for own, other in zip(optimizer.state.values(), undisturbed.state.values(), strict=True):
        for name in ("step", "probes", "weight", "probed_at", "scale", "unseen"):
            assert float(own[name]) == float(other[name]), name


@over_ways
@pytest.mark.parametrize("move", MOVES)
def test_a_state_that_was_moved_away_leaves_its_memory(way, move):
    parameters, loss = CASES[2].parameters_and_loss()
    optimizer = ESGD(parameters, **OFTEN | WAYS[way] | {"momentum": 0.9})
    train(optimizer, loss, 5)
    names = ("diagonal", "momentum_buffer")
    kept = [weakref.ref(state[name]) for state in optimizer.state.values() for name in names]
    move(optimizer)
    gc.collect()
    assert not any(tensor() is not None for tensor in kept)


def _dropped(optimizer):
    del optimizer.param_groups[0]["params"][-1]


def _reversed(optimizer):
    optimizer.param_groups.reverse()


def _looked_up(optimizer):
    optimizer.state[torch.zeros(1)]


@over_ways
@pytest.mark.parametrize("change", [_dropped, _reversed, _looked_up])
def test_groups_that_change_take_the_path_of_the_reference(way, change):
    """Two groups, the second never measured: the loss does not depend on it."""
    ends = []
    for options in ({}, WAYS[way]):
        parameters, loss = CASES[2].parameters_and_loss()
        flat = nn.Parameter(torch.ones(3))
        idle = nn.Parameter(torch.ones(2))
        groups = [{"params": [flat, *parameters]}, {"params": [idle]}]
        optimizer = ESGD(groups, **OFTEN | options)
        train(optimizer, lambda loss=loss, flat=flat: loss() + flat.sum(), 5)
        change(optimizer)
        train(optimizer, lambda loss=loss, flat=flat: loss() + flat.sum(), 6)
        ends.append([p.detach() for p in [flat, *parameters]])
    assert_near(ends[1], ends[0], AMPLIFIED)
