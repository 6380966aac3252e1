"""Between two steps anything may be changed by its owner: a fused step takes it as it is then."""

import copy

import pytest
import torch
from torch import nn

from equilibrate import ESGD
from equilibrate.kernels import capture
from tests.kernels.device import RUNS_KERNELS, random

pytest.importorskip("triton")
pytestmark = RUNS_KERNELS


def _elsewhere(optimizer, parameters):
    for p in parameters:
        p.data = p.data.clone()


def _in_double(optimizer, parameters):
    for p in parameters:
        p.data, p.grad = p.data.double(), None


def _transposed(optimizer, parameters):
    parameters[0].data = parameters[0].data.t().contiguous().t()


def _transposed_where_they_are(optimizer, parameters):
    p = parameters[3]
    p.data = p.data.t()
    p.grad = torch.zeros(3, 3, device=p.device)  # filled in its own order


def _diagonals_elsewhere(optimizer, parameters):
    for p in parameters:
        optimizer.state[p]["diagonal"] = optimizer.state[p]["diagonal"].clone()


def _states_copied(optimizer, parameters):
    for p in parameters:
        optimizer.state[p] = copy.deepcopy(optimizer.state[p])


def _loaded(optimizer, parameters):
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))


def _one_without_gradient(optimizer, parameters):
    parameters[1].requires_grad_(False)


def _settings(optimizer, parameters):
    optimizer.param_groups[0].update(lr=0.05, weight_decay=0.1, maximize=True, damping=0.3)


def _momentum(optimizer, parameters):
    optimizer.param_groups[0].update(momentum=0.9, nesterov=True, update_limit=0.5)


def _one_more(optimizer, parameters):
    parameters.append(nn.Parameter(parameters[1].detach().clone()))
    optimizer.add_param_group({"params": [parameters[-1]], "lr": 0.1})


def _other_order(optimizer, parameters):
    optimizer.param_groups[0]["params"].reverse()


CHANGES = {
    change.__name__[1:].replace("_", " "): change
    for change in (
        _elsewhere,
        _in_double,
        _transposed,
        _transposed_where_they_are,
        _diagonals_elsewhere,
        _states_copied,
        _loaded,
        _one_without_gradient,
        _settings,
        _momentum,
        _one_more,
        _other_order,
    )
}


def _trained(change, **options):
    """Return where parameters are, and how many steps each has made, with a change in between."""
    torch.manual_seed(0)
    parameters = [nn.Parameter(random(shape)) for shape in [(4, 3), (3,), (70,), (3, 3)]]
    optimizer = ESGD(parameters, lr=0.02, probe_every=2, warmup_probes=3, **options)
    for number in range(8):
        if number == 4:
            change(optimizer, parameters)
        terms = [(p.double() * (1 + i)).tanh().square().sum() for i, p in enumerate(parameters)]
        optimizer.probe(sum(terms) + (terms[0] * terms[1]).sin(), backward=True)
        optimizer.step()
        optimizer.zero_grad()
    ends = [p.detach().double() for p in parameters]
    return [*ends, *(optimizer.state[p]["step"].double() for p in parameters)]


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("change", list(CHANGES.values()), ids=list(CHANGES))
def test_what_changed_between_steps_is_taken_as_it_is(change, momentum, monkeypatch):
    """With kernels and with plain tensors, to the rounding of single precision in eight steps."""
    monkeypatch.setattr(capture, "runs_kernels", lambda device: True)
    plain = _trained(change, momentum=momentum)
    found = _trained(change, momentum=momentum, fused=True)
    for f, p in zip(found, plain, strict=True):
        torch.testing.assert_close(f, p.to(f.device), rtol=1e-4, atol=1e-6)
