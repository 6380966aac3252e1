"""torch's own checks of an optimizer, for ESGD and JacobiSGD: groups, idle steps and errors.

The names on the torch side, and the checks that are not here, are in docs/torch-contract.md.
"""

import pytest
import torch
from torch import nn

from tests.optim.entries import (
    WRONG_HYPER_PARAMETERS,
    WRONG_PARAMETERS,
    affine,
    copies,
    identical,
    loss_of,
    network,
    over_all_dtypes,
    over_entries,
    over_kinds,
    over_optimizers,
    step_alone,
    weight_and_bias,
)
from tests.optim.loops import train

DOUBLE, HALF = torch.float64, torch.bfloat16

pytestmark = pytest.mark.filterwarnings("error")


# Parameter groups.


@over_entries
def test_equal_groups_are_one_group(entry):
    one, two = network(DOUBLE), network(DOUBLE)
    train(entry(one.parameters()), loss_of(one), 5)
    train(entry([{"params": p} for p in two.parameters()]), loss_of(two), 5)
    assert identical(copies(one.parameters()), copies(two.parameters()))


@pytest.mark.parametrize("own", [{"lr": 0.5}, {"weight_decay": 0.75}, {"momentum": 0.25}], ids=str)
@over_entries
def test_a_group_moves_by_its_own_hyper_parameters(entry, own):
    """After one step each group is where an optimizer with its arguments alone would be."""

    def after_one_step(make):
        weight, bias = weight_and_bias(DOUBLE)
        train(make(weight, bias), affine(weight, bias), 1)
        return copies([weight, bias])

    groups = after_one_step(lambda w, b: entry([{"params": w}, {"params": [b], **own}]))
    outer, inner = (after_one_step(lambda w, b, kw=kw: entry([w, b], **kw)) for kw in ({}, own))
    assert identical(groups, [outer[0], inner[1]])


@over_entries
def test_only_some_parameters_are_given(entry):
    weight, bias = weight_and_bias()
    before = copies([weight, bias])
    train(entry([{"params": bias, "lr": 0.125}], lr=0.5), affine(weight, bias), 3)
    assert identical(before[0], weight.detach())
    assert not torch.equal(before[1], bias)


@over_entries
def test_a_group_may_be_added_before_the_first_step(entry):
    trained = []
    for late in (False, True):
        weight, bias = weight_and_bias()
        optimizer = entry([weight] if late else [{"params": [weight]}, {"params": [bias]}])
        if late:
            optimizer.add_param_group({"params": bias})
        train(optimizer, affine(weight, bias), 5)
        trained.append(copies([weight, bias]))
    assert identical(*trained)


@over_entries
def test_a_group_added_while_training_is_measured_and_moves(entry):
    weight, bias = weight_and_bias()
    optimizer = entry([weight], probe_every=20)
    train(optimizer, affine(weight, bias), 2)
    before, diagonal = bias.detach().clone(), optimizer.diagonal()[0]
    optimizer.add_param_group({"params": [bias], "lr": 0.125})
    assert optimizer.param_groups[1]["momentum"] == optimizer.param_groups[0]["momentum"]
    assert optimizer.probe_due
    train(optimizer, affine(weight, bias), 1)
    assert not torch.equal(before, bias)
    assert bool((optimizer.diagonal()[1] > 0).all())
    assert torch.equal(optimizer.diagonal()[0], diagonal)  # it was not due itself


# Nothing to do.


@over_entries
def test_step_is_a_noop_when_parameters_need_no_gradient(entry):
    frozen = [torch.ones(2, 3), torch.ones(3)]
    optimizer = entry(frozen)
    for _ in range(4):
        assert step_alone(optimizer, lambda: 1.0) == 1.0
    assert identical(frozen, [torch.ones(2, 3), torch.ones(3)])


@over_entries
def test_step_is_a_noop_without_gradients(entry):
    model = network()
    optimizer = entry(model.parameters())
    step_alone(optimizer)  # even before anything was measured
    train(optimizer, loss_of(model), 3)
    before = copies(model.parameters())
    for _ in range(3):
        step_alone(optimizer)
    assert identical(before, copies(model.parameters()))


@over_optimizers
def test_an_idle_step_does_not_ask_for_a_probe(entry):
    model = network()
    optimizer = entry(model.parameters())
    train(optimizer, loss_of(model), 1)
    for _ in range(3):
        optimizer.step()
    assert optimizer.probe_due


@over_all_dtypes
@over_entries
def test_zero_gradients_leave_weight_decay_alone(entry, dtype):
    model = network(dtype)
    optimizer = entry(model.parameters())
    optimizer.calibrate([loss_of(model)()])
    before = copies(model.parameters())
    for p in model.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    group = optimizer.param_groups[0]
    shrink = 1 - float(group["lr"]) * group["weight_decay"]
    assert identical([p * shrink for p in before], copies(model.parameters()))


@over_entries
def test_empty_parameters(entry):
    weight, bias = weight_and_bias()
    empty, none = nn.Parameter(torch.empty(0, 3)), nn.Parameter(torch.empty(0))
    optimizer = entry([{"params": [empty, weight]}, {"params": [bias, none]}])
    before, loss = copies([weight, bias]), affine(weight, bias)
    train(optimizer, lambda: loss() + empty.square().sum() + none.sum(), 4)
    assert all(p.isfinite().all() for p in (weight, bias))
    assert not any(map(torch.equal, before, (weight, bias)))


@pytest.mark.parametrize("members", ["none", "frozen"])
@over_kinds
def test_a_group_with_nothing_to_train_is_never_due(kind, members):
    model = network()
    idle = [] if members == "none" else [nn.Parameter(torch.ones(2), requires_grad=False)]
    optimizer = kind([{"params": model.parameters()}, {"params": idle}], probe_every=3)
    due = []
    for _ in range(7):
        due.append(optimizer.probe_due)
        train(optimizer, loss_of(model), 1)
    assert due == [True, False, False, True, False, False, True]


@over_entries
def test_zero_grad(entry):
    trained = []
    for set_to_none in (True, False):
        model = network()
        optimizer = entry(model.parameters())
        for _ in range(4):
            loss = loss_of(model)()
            optimizer.probe(loss)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none)
        gradients = [p.grad for p in model.parameters()]
        assert all(g is None if set_to_none else not g.any() for g in gradients)
        trained.append(copies(model.parameters()))
    assert identical(*trained)


@over_optimizers
def test_zero_grad_twice_is_zero_grad_once(entry):
    model = network()
    optimizer = entry(model.parameters(), warmup_probes=1)
    loss = loss_of(model)()
    loss.backward(retain_graph=True)
    optimizer.probe(loss)
    optimizer.zero_grad()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


@over_entries
def test_no_step_where_the_scaler_found_an_infinity(entry):
    model = network()
    optimizer = entry(model.parameters())
    train(optimizer, loss_of(model), 3)
    before, steps = copies(model.parameters()), [float(s["step"]) for s in optimizer.state.values()]
    optimizer.found_inf = torch.ones(())
    train(optimizer, loss_of(model), 1)
    assert identical(before, copies(model.parameters()))
    assert steps == [float(s["step"]) for s in optimizer.state.values()]
    optimizer.found_inf = torch.zeros(())
    train(optimizer, loss_of(model), 1)
    assert not identical(before, copies(model.parameters()))


# What is wrong is said.


@pytest.mark.parametrize("given", WRONG_HYPER_PARAMETERS, ids=lambda given: given.desc)
@over_kinds
def test_wrong_hyper_parameters(kind, given):
    one, two = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    optimizer = kind([one])
    with pytest.raises(given.error_type, match=given.error_regex):
        kind([two], **given.kwargs)
    with pytest.raises(given.error_type, match=given.error_regex):
        kind([{"params": [one]}, {"params": [two], **given.kwargs}])
    with pytest.raises(given.error_type, match=given.error_regex):
        optimizer.add_param_group({"params": [two], **given.kwargs})
    assert len(optimizer.param_groups) == 1


@pytest.mark.parametrize("given", WRONG_PARAMETERS, ids=lambda given: given.desc)
@over_kinds
def test_wrong_parameters(kind, given):
    with pytest.raises(given.error_type, match=given.error_regex):
        kind(given.params())


@over_optimizers
def test_a_group_that_is_not_a_dict_is_refused(entry):
    with pytest.raises(TypeError, match="param_group must be a dict"):
        entry([torch.ones(2)]).add_param_group([torch.ones(2)])


@over_entries
def test_a_step_before_any_probe_raises(entry):
    model = network()
    optimizer = entry(model.parameters())
    loss_of(model)().backward()
    before = copies(model.parameters())
    with pytest.raises(RuntimeError, match=r"optimizer\.probe\(loss\) before loss\.backward"):
        optimizer.step()
    assert identical(before, copies(model.parameters()))


@over_optimizers
def test_sparse_gradients_are_refused_before_anything_moves(entry):
    table = nn.Embedding(4, 3, sparse=True)
    head = nn.Parameter(torch.ones(3))
    optimizer = entry([head, table.weight])
    optimizer.calibrate([(table.weight * head).square().sum()])
    (table(torch.tensor([1, 1])) * head).square().sum().backward()
    with pytest.raises(RuntimeError, match="sparse=False"):
        optimizer.step()
    assert torch.equal(head, torch.ones(3))


@over_entries
def test_it_can_be_printed(entry):
    shown = repr(entry([{"params": [torch.ones(2)]}, {"params": [torch.ones(2)], "lr": 0.75}]))
    assert shown.startswith(f"{entry.info.optim_cls.__name__} (\nParameter Group 0\n")
    assert "lr: 0.75" in shown
    assert all(f"{name}: {value}" in shown for name, value in entry.input.kwargs.items())
