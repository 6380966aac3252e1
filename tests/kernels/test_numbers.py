"""The numbers of a group after folds on the device: those of folds with plain numbers."""

import pytest
import torch
from torch import nn

from equilibrate import ESGD, JacobiSGD
from equilibrate.kernels import capture
from tests.kernels.device import RUNS_KERNELS, SHAPES, random

pytest.importorskip("triton")
pytestmark = RUNS_KERNELS

NUMBERS = ("step", "probes", "weight", "probed_at", "scale", "unseen")
OPTIONS = {
    "as shipped": {},
    "never forgets": {"decay": None},
    "initial damping": {"damping": 0.1, "damping_kind": "initial"},
    "absolute damping": {"damping": 0.1, "damping_kind": "absolute"},
    "no damping": {"damping": 0.0},
}


@pytest.mark.parametrize("kind", [ESGD, JacobiSGD])
@pytest.mark.parametrize("options", list(OPTIONS.values()), ids=list(OPTIONS))
def test_the_numbers_after_folds_are_those_of_plain_folds(kind, options, monkeypatch):
    """Products with zeros, one that is not finite, several steps between: one group, two blocks."""
    from equilibrate.kernels import numbers

    launches = []
    renew = numbers.renew_
    monkeypatch.setattr(numbers, "renew_", lambda *given: (launches.append(1), renew(*given)))
    monkeypatch.setattr(numbers, "_BLOCK", 16)
    monkeypatch.setattr(capture, "runs_kernels", lambda device: True)
    ends = []
    for more in ({}, {"fused": True}):
        torch.manual_seed(0)
        parameters = [nn.Parameter(random(shape)) for shape in [*SHAPES[:6], *[(2,)] * 20]]
        optimizer = kind(parameters, lr=0.01, probe_every=2, **options, **more)
        signs = [random(p.shape).sign() for p in parameters]
        for number in range(8):
            if optimizer.probe_due or not number:
                vectors = [random(p.shape).sign() for p in parameters]
                # An element's contributions have one sign: where a mean cancels, a kernel's fused
                # multiply-adds round it otherwise, and without damping an update divides by it.
                products = [
                    random(v.shape).clamp_min(0) * v * sign
                    for v, sign in zip(vectors, signs, strict=True)
                ]
                products[3] *= 1e-12  # below rounding: no curvature of its own
                if number == 4:
                    products[-1][0] = float("nan")
                optimizer.observe(vectors, products)
            for p in parameters:
                p.grad = random(p.shape)
            optimizer.step()
            if number == 4:  # a plain step leaves the probe due at once, one on the device does not
                optimizer.param_groups[0]["steps_since_probe"] = 1
        states = [optimizer.state[p] for p in parameters]
        found = {name: torch.tensor([float(s[name]) for s in states]).double() for name in NUMBERS}
        group = optimizer.param_groups[0]
        for name in ("mean_scale", "probe_index", "dropped_probes"):
            found[name] = torch.tensor(float(group[name])).double()
        found["parameters"] = torch.cat([p.detach().flatten() for p in parameters])
        ends.append(found)
    assert len(launches) == 3  # the first fold is made with plain numbers
    for name, plain in ends[0].items():
        torch.testing.assert_close(
            ends[1][name], plain, rtol=1e-5, atol=1e-6, msg=lambda m, n=name: f"{n}: {m}"
        )
