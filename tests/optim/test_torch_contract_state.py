"""torch's own checks of an optimizer, for ESGD and JacobiSGD: saving, loading, copying and hooks.

The names on the torch side, and the checks that are not here, are in docs/torch-contract.md.
"""

import io
import pickle
from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.optim import SGD
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from tests.optim.entries import (
    copies,
    identical,
    loss_of,
    network,
    over_all_dtypes,
    over_entries,
    over_optimizers,
)
from tests.optim.loops import train

pytestmark = pytest.mark.filterwarnings("error")


def through_file(content, weights_only):
    file = io.BytesIO()
    torch.save(content, file)
    file.seek(0)
    return torch.load(file, weights_only=weights_only)


WAYS = {
    "deepcopy": deepcopy,
    "weights_only": lambda state: through_file(state, weights_only=True),
    "pickled": lambda state: through_file(state, weights_only=False),
}
over_ways = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def trained(entry, steps=5, dtype=torch.float32, named=False):
    model = network(dtype)
    optimizer = entry(model.named_parameters() if named else model.parameters())
    train(optimizer, loss_of(model), steps)
    return model, optimizer


def go_on_alike(pair, other, steps=5):
    """Train both further and compare parameters and all that would be saved, bit for bit."""
    for model, optimizer in (pair, other):
        train(optimizer, loss_of(model), steps)
    assert identical(copies(pair[0].parameters()), copies(other[0].parameters()))
    assert identical(unnamed(pair[1].state_dict()), unnamed(other[1].state_dict()))


def unnamed(state_dict):
    groups = [
        {k: v for k, v in group.items() if k != "param_names"}
        for group in state_dict["param_groups"]
    ]
    return {**state_dict, "param_groups": groups}


# Saving and loading.


@over_all_dtypes
@over_entries
def test_resumed_training_goes_on_bit_for_bit(entry, dtype):
    """Into an optimizer built with other arguments: all that matters is in the file."""
    model, optimizer = trained(entry, dtype=dtype)
    again = deepcopy(model)
    resumed = entry.info.optim_cls(again.parameters(), lr=0.75, momentum=0.5, seed=11)
    resumed.load_state_dict(WAYS["weights_only"](optimizer.state_dict()))
    go_on_alike((model, optimizer), (again, resumed))


@over_ways
@over_entries
def test_a_saved_state_is_the_state(entry, way):
    state = trained(entry)[1].state_dict()
    assert len(state["state"]) == 4
    assert all(len(each) > 0 for each in state["state"].values())
    assert identical(way(state), state)


@pytest.mark.parametrize("to_named", [True, False], ids=["to named", "to unnamed"])
@pytest.mark.parametrize("from_named", [True, False], ids=["from named", "from unnamed"])
@over_optimizers
def test_parameters_may_have_names(entry, from_named, to_named):
    model, optimizer = trained(entry, named=from_named)
    again = deepcopy(model)
    resumed = entry(again.named_parameters() if to_named else again.parameters())
    resumed.load_state_dict(deepcopy(optimizer.state_dict()))
    if from_named or to_named:
        names = [name for name, _ in model.named_parameters()]
        assert resumed.state_dict()["param_groups"][0]["param_names"] == names
    go_on_alike((model, optimizer), (again, resumed))


@over_optimizers
def test_loading_leaves_the_dict_alone(entry):
    model, optimizer = trained(entry)
    given = optimizer.state_dict()
    before, again = deepcopy(given), deepcopy(model)
    resumed = entry(again.parameters())
    resumed.load_state_dict(given)
    train(resumed, loss_of(again), 3)
    assert identical(given, before)


@over_entries
def test_an_untouched_optimizer_can_be_saved_and_loaded(entry):
    models = [network(), network()]
    fresh = [entry(model.parameters()) for model in models]
    fresh[1].load_state_dict(fresh[0].state_dict())
    go_on_alike((models[0], fresh[0]), (models[1], fresh[1]))


def parameters_in_groups(*sizes):
    return [{"params": [nn.Parameter(torch.ones(2)) for _ in range(size)]} for size in sizes]


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ([3], "different number of parameter groups"),
        ([1, 2], "doesn't match the size of optimizer's group"),
        ([2, 2], "doesn't match the size of optimizer's group"),
    ],
    ids=["one group", "other order", "one more"],
)
@over_optimizers
def test_groups_that_do_not_match_are_refused(entry, sizes, message):
    saved = entry(parameters_in_groups(2, 1)).state_dict()
    model, optimizer = trained(entry)
    before = deepcopy(optimizer.state_dict())
    with pytest.raises(ValueError, match=message):
        entry(parameters_in_groups(*sizes)).load_state_dict(saved)
    with pytest.raises(ValueError, match="different number of parameter groups"):
        optimizer.load_state_dict(saved)
    assert identical(before, optimizer.state_dict())
    go_on_alike((model, optimizer), trained(entry))


@over_optimizers
def test_a_state_dict_without_later_flags_can_be_loaded(entry):
    model, optimizer = trained(entry)
    older = deepcopy(optimizer.state_dict())
    for group in older["param_groups"]:
        for flag in entry.info.not_og_supported_flags:
            del group[flag]
    optimizer.load_state_dict(older)
    train(optimizer, loss_of(model), 1)


@over_optimizers
def test_a_step_that_is_a_plain_number_can_be_loaded(entry):
    model, optimizer = trained(entry)
    again, resumed = deepcopy((model, optimizer))
    plain = deepcopy(optimizer.state_dict())
    for state in plain["state"].values():
        state["step"] = state["step"].item()
    resumed.load_state_dict(plain)
    go_on_alike((model, optimizer), (again, resumed))


@over_optimizers
def test_state_may_hold_what_is_not_a_parameters(entry):
    optimizer = entry((model := network()).parameters())
    optimizer.state["mine"] = 1
    train(optimizer, loss_of(model), 5)
    optimizer.load_state_dict(deepcopy(optimizer.state_dict()))
    assert optimizer.state["mine"] == 1


# Copying.


@pytest.mark.parametrize(
    "way",
    [deepcopy, lambda both: pickle.loads(pickle.dumps(both)), WAYS["pickled"]],
    ids=["deepcopy", "pickle", "torch.save"],
)
@over_entries
def test_a_copy_goes_on_bit_for_bit(entry, way):
    model, optimizer = trained(entry)
    again, copied = way((model, optimizer))
    assert not {id(p) for p in model.parameters()} & {id(p) for p in again.parameters()}
    public = [{name for name in vars(o) if name[0] != "_"} for o in (optimizer, copied)]
    assert public[0] == public[1]
    train(copied, loss_of(again), 5)  # alone first: nothing may be shared
    train(optimizer, loss_of(model), 5)
    go_on_alike((model, optimizer), (again, copied), steps=1)


# Hooks.


@over_optimizers
def test_step_hooks_run_in_order_and_can_be_removed(entry):
    model, calls = network(), []
    optimizer, other = entry(model.parameters()), SGD(network().parameters())

    def note(what):
        return lambda *_: calls.append(what)

    handles = [
        register_optimizer_step_pre_hook(note("global pre")),
        register_optimizer_step_post_hook(note("global post")),
        optimizer.register_step_pre_hook(note("pre")),
        optimizer.register_step_post_hook(note("post")),
    ]
    try:
        train(optimizer, loss_of(model), 2)
        assert calls == ["global pre", "pre", "post", "global post"] * 2
        other.step()
        assert calls[8:] == ["global pre", "global post"]
    finally:
        for handle in handles:
            handle.remove()
    train(optimizer, loss_of(model), 1)
    assert len(calls) == 10


@over_optimizers
def test_a_step_hook_may_give_other_arguments(entry):
    model = network()
    optimizer, seen = entry(model.parameters()), []
    first, start = float(loss_of(model)().detach()), copies(model.parameters())

    def closure():
        optimizer.zero_grad()
        loss = loss_of(model)()
        optimizer.probe(loss)
        loss.backward()
        return loss.detach()

    optimizer.register_step_pre_hook(lambda *_: ((optimizer, closure), {}))
    optimizer.register_step_post_hook(lambda _, args, kwargs: seen.append((args[1], kwargs)))
    assert float(optimizer.step()) == first
    assert seen == [(closure, {})]
    assert not identical(start, copies(model.parameters()))


@over_optimizers
def test_state_dict_hooks(entry):
    _, optimizer = trained(entry, steps=1)
    plain, calls = deepcopy(optimizer.state_dict()), []
    pre = optimizer.register_state_dict_pre_hook(lambda o: calls.append(o))
    post = optimizer.register_state_dict_post_hook(lambda _, given: {**given, "extra": 1})
    assert identical(optimizer.state_dict(), plain | {"extra": 1})
    assert calls == [optimizer]
    pre.remove()
    post.remove()
    assert identical(optimizer.state_dict(), plain)


@over_optimizers
def test_a_load_hook_may_change_or_replace_the_dict(entry):
    _, saved = trained(entry)
    _, optimizer = trained(entry, steps=1)

    def change(_, given):
        given["param_groups"][0]["weight_decay"] += 0.25

    def replace(_, given):
        replaced = deepcopy(given)
        replaced["param_groups"][0]["weight_decay"] = 8.0
        for state in replaced["state"].values():
            state["diagonal"] *= 2
        return replaced

    optimizer.register_load_state_dict_pre_hook(change)
    optimizer.register_load_state_dict_pre_hook(replace, prepend=True)
    optimizer.load_state_dict(deepcopy(saved.state_dict()))
    assert optimizer.param_groups[0]["weight_decay"] == 8.25
    assert identical(optimizer.diagonal(), [2 * d for d in saved.diagonal()])


@over_all_dtypes
@over_optimizers
def test_a_hook_after_loading_has_the_last_word(entry, dtype):
    _, saved = trained(entry, dtype=dtype)
    _, optimizer = trained(entry, steps=1, dtype=dtype)
    seen = []

    def note_and_change(loaded):
        seen.extend(loaded.diagonal())
        for state in loaded.state.values():
            state["diagonal"] = state["diagonal"] * 2

    optimizer.register_load_state_dict_post_hook(note_and_change)
    optimizer.load_state_dict(deepcopy(saved.state_dict()))
    assert identical(seen, saved.diagonal())
    assert identical(optimizer.diagonal(), [2 * d for d in saved.diagonal()])
