"""Hyper-parameters given as NumPy's numbers: kept as Python's own, so that checkpoints load."""

import io

import numpy as np
import pytest
import torch
from torch import nn

from equilibrate import ESGD, JacobiSGD

NUMBERS = {
    "lr": np.float32(0.25),
    "damping": np.float64(0.5),
    "decay": np.float64(0.75),
    "probe_every": np.int64(3),
    "warmup_probes": np.int32(2),
    "momentum": np.float64(0.5),
    "weight_decay": np.float32(0.5),
    "seed": np.int64(3),
}


@pytest.mark.parametrize("kind", [ESGD, JacobiSGD])
def test_a_checkpoint_of_foreign_numbers_loads_safely(kind):
    weight, other = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2))
    optimizer = kind([weight], **NUMBERS)
    optimizer.add_param_group({"params": [other], "lr": np.float64(0.125)})
    loss = (weight**4 + other**4).sum()
    optimizer.probe(loss, backward=True)
    optimizer.step()
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    first, second = torch.load(file, weights_only=True)["param_groups"]
    assert {name: first[name] for name in NUMBERS} == NUMBERS
    assert {type(first[name]) for name in NUMBERS} == {int, float}
    assert second["lr"] == 0.125
    assert type(second["lr"]) is float


@pytest.mark.parametrize("given", [{}, {"state": {}}, {"state": {}, "param_groups": []}], ids=str)
def test_what_is_no_state_is_refused_by_name(given):
    optimizer = ESGD([nn.Parameter(torch.ones(2))])
    with pytest.raises(ValueError, match=r"not what optimizer.state_dict\(\) returns"):
        optimizer.load_state_dict(given)
