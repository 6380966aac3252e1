"""An iteration that is given up, or not yet made, leaves nothing behind: not even a warm-up.

Ways to give up times optimizers: what follows is, bit for bit, the training without it.
"""

import copy
import pickle

import pytest
import torch
from torch import nn
from torch.nn.functional import mse_loss

from equilibrate import ESGD, JacobiSGD

generator = torch.Generator().manual_seed(1)
INPUTS, TARGETS = torch.randn(64, 4, generator=generator), torch.randn(64, 1, generator=generator)
MICRO = 4

OPTIMIZERS = {
    "esgd": lambda p: ESGD(p),
    "jacobi": lambda p: JacobiSGD(p),
    "momentum": lambda p: ESGD(p, momentum=0.9, mean_floor=True),
    "row-column": lambda p: ESGD(p, scaling="row-column"),
    "fused": lambda p: ESGD(p, fused=True),
    "one vector": lambda p: ESGD(p, warmup_probes=1),
    "two groups": lambda p: ESGD([{"params": p[:2]}, {"params": p[2:], "warmup_probes": 7}]),
}
over_optimizers = pytest.mark.parametrize("name", OPTIMIZERS)


class Loop:
    """A small network, its optimizer, and iterations of several micro-batches."""

    def __init__(self, name):
        torch.manual_seed(0)
        self.network = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        self.optimizer = OPTIMIZERS[name](list(self.network.parameters()))

    def loss(self, part=slice(None)):
        return mse_loss(self.network(INPUTS[part]), TARGETS[part])

    def micro_batch(self, part, scaler=None):
        loss = self.loss(part) / MICRO
        self.optimizer.probe(loss)
        (loss if scaler is None else scaler.scale(loss)).backward()

    def iterate(self):
        for start in range(MICRO):
            self.micro_batch(slice(start, None, MICRO))
        self.optimizer.step()
        self.optimizer.zero_grad()

    def told(self):
        """Return all that training depends on."""
        groups = [{k: g[k] for k in g if k != "params"} for g in self.optimizer.param_groups]
        state = [self.optimizer.state.get(p, {}) for p in self.network.parameters()]
        return copy.deepcopy([[p.detach() for p in self.network.parameters()], groups, state])


def zeroed(loop):
    """Run out of memory, say, after the first micro-batch."""
    loop.micro_batch(slice(0, None, MICRO))
    loop.optimizer.zero_grad()


def zeroed_in_place(loop):
    loop.micro_batch(slice(3, None, MICRO))
    loop.micro_batch(slice(5, None, MICRO))
    loop.optimizer.zero_grad(set_to_none=False)


def skipped(loop):
    """Overflow in the first step, as GradScaler's scale often does."""
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    loop.micro_batch(slice(0, 9), scaler)
    loop.network[0].weight.grad[0, 0] = float("inf")
    scaler.step(loop.optimizer)
    loop.optimizer.zero_grad()


def _fails_at(call):
    """Return a way to give up: an error in one call of a closure."""

    def failed(loop):
        calls = iter(range(1, 1000))

        def closure():
            if next(calls) == call:
                raise MemoryError("full")
            loop.optimizer.zero_grad()
            loss = loop.loss()
            loss.backward()
            return loss

        with pytest.raises(MemoryError):
            loop.optimizer.step(closure)
        loop.network.zero_grad()

    return failed


def _product_fails_at(number):
    """Return a way to give up: an error in one product of a probe."""

    def failed(loop):
        with pytest.MonkeyPatch.context() as patch:
            drawn, calls = type(loop.optimizer)._draw, iter(range(1, 1000))

            def draw(self, index=None):
                if next(calls) == number:
                    raise MemoryError("full")
                return drawn(self, index)

            patch.setattr(type(loop.optimizer), "_draw", draw)
            with pytest.raises(MemoryError):
                loop.optimizer.probe(loop.loss())
        loop.optimizer.zero_grad()

    return failed


WAYS = {
    "zero_grad": zeroed,
    "zero_grad in place": zeroed_in_place,
    "GradScaler": skipped,
    "the first call": _fails_at(1),
    "a call": _fails_at(5),
    "a product": _product_fails_at(1),
}
LATE = {"a late call": _fails_at(9), "a late product": _product_fails_at(6)}


def assert_same(found, expected):
    assert repr(found[1:]) == repr(expected[1:])
    for mine, theirs in zip(found[0], expected[0], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=0, atol=0)


@over_optimizers
@pytest.mark.parametrize("way", WAYS | LATE)
def test_a_first_iteration_given_up_leaves_nothing_behind(way, name):
    if way in LATE and name == "one vector":
        pytest.skip("all is over by then")
    undisturbed, loop = Loop(name), Loop(name)
    (WAYS | LATE)[way](loop)
    for _ in range(25):
        undisturbed.iterate()
        loop.iterate()
    assert_same(loop.told(), undisturbed.told())


@over_optimizers
@pytest.mark.parametrize("way", ["zero_grad", "GradScaler"])
def test_a_later_iteration_given_up_leaves_nothing_behind(way, name):
    undisturbed, loop = Loop(name), Loop(name)
    for _ in range(20):
        undisturbed.iterate()
        loop.iterate()
    assert loop.optimizer.probe_due
    WAYS[way](loop)
    for _ in range(2):
        undisturbed.iterate()
        loop.iterate()
    assert_same(loop.told(), undisturbed.told())


COPIES = {
    "state_dict": lambda optimizer: optimizer.state_dict(),
    "pickle": lambda optimizer: pickle.loads(pickle.dumps(optimizer)).state_dict(),
    "deepcopy": lambda optimizer: copy.deepcopy(optimizer).state_dict(),
}


@over_optimizers
@pytest.mark.parametrize("way", COPIES)
def test_what_is_saved_within_an_iteration_is_what_was_before_it(way, name):
    loop = Loop(name)
    loop.micro_batch(slice(0, None, MICRO))
    kept = copy.deepcopy(COPIES[way](loop.optimizer))
    new = Loop(name)
    new.optimizer.load_state_dict(kept)
    undisturbed = Loop(name)
    for each in (new, undisturbed):
        each.iterate()
    assert_same(new.told(), undisturbed.told())


@over_optimizers
@pytest.mark.parametrize("way", COPIES)
def test_saving_within_an_iteration_changes_nothing(way, name):
    undisturbed, loop = Loop(name), Loop(name)
    for each in (undisturbed, loop):
        each.micro_batch(slice(0, None, MICRO))
        if each is loop:
            COPIES[way](loop.optimizer)
        each.micro_batch(slice(1, None, MICRO))
        each.optimizer.step()
    assert_same(loop.told(), undisturbed.told())


def test_a_group_added_meanwhile_starts_as_without_the_iteration():
    def trained(given_up):
        loop = Loop("momentum")
        extra = nn.Linear(4, 1)
        with torch.no_grad():
            extra.weight.fill_(0.5), extra.bias.fill_(0.25)
        if given_up:
            loop.micro_batch(slice(0, 16))
        loop.optimizer.add_param_group({"params": extra.parameters()})
        if given_up:
            loop.micro_batch(slice(16, 32))
            loop.optimizer.zero_grad()
        whole = loop.network
        loop.network = lambda x: whole(x) + extra(x)
        for _ in range(22):
            loop.iterate()
        loop.network = nn.ModuleList([whole, extra])
        return loop.told()

    assert_same(trained(True), trained(False))


def test_a_parameter_absent_before_is_absent_again():
    torch.manual_seed(0)
    used, late = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    optimizer = ESGD([used, late])
    for _ in range(2):
        optimizer.probe((used**4).sum(), backward=True)
        optimizer.step()
        optimizer.zero_grad()
    assert not optimizer.probe_due
    optimizer.probe(((used * late) ** 4).sum(), backward=True)
    optimizer.zero_grad()
    assert not optimizer.probe_due
    assert optimizer.state[late]["absent"]


def test_what_a_given_up_iteration_did_not_reach_has_no_state():
    used, unused = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    optimizer = ESGD([used, unused])
    optimizer.probe((used**4).sum(), backward=True)
    assert optimizer.state_dict()["state"] == {}
    optimizer.zero_grad()
    assert not optimizer.state


def test_the_floor_stays_that_of_a_calibration_before():
    def first_mean(skip):
        loop = Loop("momentum")
        loop.optimizer.calibrate([5 * loop.loss(slice(0, 8))])
        if skip:
            skipped(loop)
        loop.optimizer.calibrate([loop.loss(slice(k, k + 8)) for k in range(0, 64, 8)])
        loop.iterate()
        return loop.optimizer.param_groups[0]["first_mean_scale"]

    assert first_mean(True) == first_mean(False)


@pytest.mark.parametrize("set_to_none", [True, False])
def test_gradients_cleared_by_somebody_else_are_no_backward(set_to_none):
    loop = Loop("esgd")
    for _ in range(100):
        loss = loop.loss()
        loop.optimizer.probe(loss)
        loop.network.zero_grad(set_to_none)
        loop.optimizer.zero_grad(set_to_none)
        loss.backward()
        loop.optimizer.step()
    assert {state["probes"] for state in loop.optimizer.state.values()} == {20 + 4}


def test_a_closure_that_gives_up_what_was_probed_measures_itself():
    loop, alone = Loop("esgd"), Loop("esgd")
    loop.micro_batch(slice(0, 16))
    for each in (loop, alone):

        def closure(each=each):
            each.optimizer.zero_grad()
            loss = each.loss()
            loss.backward()
            return loss

        each.optimizer.step(closure)
    assert_same(loop.told(), alone.told())
