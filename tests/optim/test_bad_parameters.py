"""Sparse gradients, complex parameters, hyper-parameters out of range: refused, nothing changed."""

import math

import pytest
import torch
from torch import nn

from equilibrate import ESGD
from tests.optim.bad_input import BOTH, DOUBLE, TRAINED, X, always_due, network
from tests.optim.loops import train, train_by_closure
from tests.optim.watching import parameters_of, unchanged


def sparse_embedding(steps: int):
    table = nn.Embedding(5, 3, sparse=True, dtype=DOUBLE)
    optimizer = ESGD(table.parameters(), lr=0.01, probe_every=1, warmup_probes=3)
    for _ in range(steps):  # measured elsewhere, so that the state is not empty
        optimizer.observe([torch.ones(5, 3)], [torch.ones(5, 3)])
        optimizer.step()
    return optimizer, lambda: table(torch.tensor([1, 2])).pow(4).sum()


@TRAINED
@pytest.mark.parametrize("way", ["probe", "step", "closure"])
def test_sparse_gradients_are_refused(way, steps):
    optimizer, loss = sparse_embedding(steps)
    live = loss()
    if way == "step":
        live.backward()
    call = {
        "probe": lambda: optimizer.probe(live),
        "step": optimizer.step,
        "closure": lambda: train_by_closure(optimizer, loss, 1),
    }[way]
    but = ("gradients",) if way == "closure" else ()  # the closure leaves its own
    with (
        unchanged(optimizer, but=but),
        pytest.raises(RuntimeError, match=r"sparse=False.*SparseAdam"),
    ):
        call()


@BOTH
def test_complex_parameters_are_refused(kind):
    complex_one = nn.Parameter(torch.ones(2, dtype=torch.complex64))
    with pytest.raises(ValueError, match=r"complex64.*torch\.view_as_real"):
        kind([complex_one])
    optimizer = always_due(network(), steps=1, kind=kind)
    with unchanged(optimizer), pytest.raises(ValueError, match=r"complex64.*torch\.view_as_real"):
        optimizer.add_param_group({"params": [nn.Parameter(torch.ones(1)), complex_one]})
    assert len(optimizer.param_groups) == 1


NAN, INFINITY = math.nan, math.inf


OUT_OF_RANGE = {
    "lr": [
        *(-0.1, NAN, INFINITY, "0.1", None, True),
        *(torch.tensor(-1.0), torch.tensor(NAN), torch.tensor(INFINITY), torch.ones(2)),
    ],
    "damping": [-1e-9, NAN, INFINITY, None, "relative"],
    "damping_kind": ["abs", None, 1],
    "decay": [0.0, 1.0, 1, -0.5, NAN, "none", True],
    "probe_every": [0, -1, 2.0, None, True],
    "warmup_probes": [0, -3, 1.5, None, True],
    "distribution": ["normal", None, 0],
    "momentum": [-0.1, 1.0, NAN, None, True],
    "nesterov": [True, 1, None],  # True, because momentum is zero
    "update_limit": [0.0, -0.1, NAN, INFINITY, "none", True],
    "growth_limit": [1.0, 0.0, -2.0, NAN, INFINITY, "none", True],
    "mean_floor": [1, None, "yes"],
    "weight_decay": [-0.1, NAN, INFINITY, None],
    "maximize": [1, None, "yes"],
    "foreach": ["yes", 2],
    "fused": ["yes", 2],
    "capturable": ["yes", None],
    "seed": [0.5, "0", None, 2**63, -(2**63)],
}


@BOTH
@pytest.mark.parametrize(
    ("name", "value"),
    [(name, value) for name, values in OUT_OF_RANGE.items() for value in values],
    ids=str,
)
def test_a_hyper_parameter_out_of_range_is_refused(name, value, kind):
    with pytest.raises(ValueError, match=f"Invalid {name}: ") as refusal:
        kind(network().parameters(), **{name: value})
    assert repr(value) in str(refusal.value)

    optimizer = always_due(network(), steps=1, kind=kind)
    extra = {"params": [nn.Parameter(torch.ones(2))], name: value}
    with unchanged(optimizer), pytest.raises(ValueError, match=f"Invalid {name}: ") as refusal:
        optimizer.add_param_group(extra)
    assert repr(value) in str(refusal.value)
    assert len(optimizer.param_groups) == 1
    train(
        optimizer, lambda: torch.stack([p.pow(2).sum() for p in parameters_of(optimizer)]).sum(), 1
    )


# What people pass by mistake: the call, the error, what it says
MISTAKES = {
    "a loss to step": (lambda o, m: o.step(m(X).sum()), "Call loss.backward"),
    "a file to load_state_dict": (lambda o, m: o.load_state_dict("last.pt"), "weights_only=True"),
    "the model to probe": (lambda o, m: o.probe(m), "Pass the loss itself."),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_natural_mistake_is_told_the_right_call(name):
    call, words = MISTAKES[name]
    model = network()
    optimizer = always_due(model, steps=2)
    with unchanged(optimizer), pytest.raises(TypeError, match=words):
        call(optimizer, model)
