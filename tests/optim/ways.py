"""The ways to take a step, and a fixture that makes all of them run on a CPU."""

from functools import partial

import pytest
import torch

from equilibrate.optim import limiting
from equilibrate.rules import fused

WAYS = {
    "reference": {"foreach": False},
    "foreach": {},
    "fused": {"fused": True},
    "capturable": {"capturable": True},
    "average on the device": {},
}
over_ways = pytest.mark.parametrize("way", WAYS)


@pytest.fixture(autouse=True)
def ways(request, monkeypatch):
    """Compile as for real, but run torch's own kernels; and keep the average as on a GPU."""
    monkeypatch.setattr(fused, "compiled", partial(fused.compiled, "aot_eager"))
    if "average on the device" in request.node.name:
        monkeypatch.setattr(limiting, "on_one_device", lambda parameters: True)
    yield
    torch._dynamo.reset()
