"""torch.distributed.checkpoint, in one process: a resumed run is the one that never stopped.

It asks a new optimizer for its state dict first, and reads from the files what it finds there.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from equilibrate import ESGD
from tests.optim.entries import identical
from tests.optim.loops import train

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.distributed is:UserWarning")

Run = tuple[nn.Module, ESGD, Callable[[], Tensor]]

# name: arguments of the optimizer, and how many of the first parameters are frozen
RUNS: dict[str, tuple[dict[str, Any], int]] = {
    "plain": ({}, 0),
    "momentum": ({"momentum": 0.9, "nesterov": True}, 0),
    "a frozen parameter": ({"momentum": 0.9}, 1),
    "fused": ({"fused": True, "momentum": 0.9, "mean_floor": True}, 0),
    "capturable": ({"capturable": True, "momentum": 0.9}, 0),
    "both, a frozen parameter": ({"fused": True, "capturable": True}, 1),
}


def _run(options: dict[str, Any], frozen: int) -> Run:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 2))
    for parameter in list(model.parameters())[:frozen]:
        parameter.requires_grad_(False)
    x, y = torch.randn(16, 4), torch.randn(16, 2)
    optimizer = ESGD(model.parameters(), lr=0.05, probe_every=3, **options)
    return model, optimizer, lambda: (model(x) - y).square().mean()


def _content(run: Run) -> dict[str, Any]:
    weights, state = get_state_dict(run[0], run[1])
    return {"model": weights, "optimizer": state}


def _load(run: Run, folder: str) -> None:
    content = _content(run)
    dcp.load(content, checkpoint_id=folder)
    parts = {"model_state_dict": content["model"], "optim_state_dict": content["optimizer"]}
    set_state_dict(run[0], run[1], **parts)


@pytest.mark.parametrize("steps", [4, 5, 6], ids=lambda steps: f"{steps} steps")
@pytest.mark.parametrize("name", RUNS)
def test_a_run_goes_on_bit_for_bit(name, steps, tmp_path):
    """Between two probes, and where one is due."""
    straight, resumed = _run(*RUNS[name]), _run(*RUNS[name])
    train(straight[1], straight[2], steps)
    dcp.save(_content(straight), checkpoint_id=str(tmp_path / "saved"))
    _load(resumed, str(tmp_path / "saved"))
    for _, optimizer, loss in (straight, resumed):
        train(optimizer, loss, 5)
    assert identical(_content(straight), _content(resumed))
