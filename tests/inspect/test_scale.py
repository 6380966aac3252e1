"""A power of two on the loss is a power of two on its curvature, and nothing else: bit for bit."""

from dataclasses import replace
from functools import cache

import pytest
import torch
from torch import nn

from equilibrate.inspect import inspect_model, verdict
from equilibrate.inspect.verdict import beside, gain
from tests.monitor.test_scale import SCALES


@cache
def _inspected(dtype, exponent, path=None):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 1)).to(dtype)
    x, y = torch.randn(40, 3, dtype=dtype), torch.randn(40, 1, dtype=dtype)

    def loss(output, targets):
        return 2.0**exponent * nn.functional.mse_loss(output, targets)

    return inspect_model(model, (x, y), loss, batch_size=20, quick=True, path=path)


@pytest.mark.parametrize(("dtype", "exponent"), SCALES)
def test_an_inspection_is_the_same_at_any_scale_of_the_loss(dtype, exponent, tmp_path):
    plain, factor = _inspected(dtype, 0), 2.0**exponent
    scaled = _inspected(dtype, exponent, tmp_path / "report.html")
    assert (verdict(scaled).split(" by ")[0], gain(scaled, "equilibration")) == (
        verdict(plain).split(" by ")[0],
        gain(plain, "equilibration"),
    )
    assert beside(scaled) == beside(plain)
    assert scaled.distances == plain.distances
    assert scaled.spectra["none"].largest.value == plain.spectra["none"].largest.value * factor
    for found, layer in zip(scaled.layers, plain.layers, strict=True):
        for kind, quantiles in layer.quantiles.items():
            assert found.quantiles[kind] == {n: q * factor for n, q in quantiles.items()}, kind
        assert found.blocks.keys() == layer.blocks.keys()
        assert replace(found, quantiles={}, blocks={}) == replace(layer, quantiles={}, blocks={})
