"""Labels of layers in charts: short, all different, and the whole name where there is room."""

import re
from dataclasses import replace

import pytest
from torch import nn

from equilibrate.inspect import inspect_model, plots
from equilibrate.inspect.labels import labels
from tests.inspect import problems


def _encoder(layers):
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    return nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)


def _names(model):
    return [name for name, _ in model.named_parameters()]


ADAPTED = [f"base_model.model.layers.{i}.self_attn.{p}_proj.lora_{ab}.default.weight"
           for i in (1, 10, 11) for p in "qkv" for ab in "AB"]  # fmt: skip

NAMES = {
    "short": ["0.weight", "0.bias", "2.weight"],
    "two layers": _names(_encoder(2)),
    "twelve layers between others": [
        "inward.weight", *_names(nn.ModuleDict({"encoder": _encoder(12)})), "outward.bias",
    ],
    "adapters": ADAPTED,
    "one long word": ["a" * 40, "b" + "a" * 40, "a" * 41],
    "different in the middle": [f"{'a' * 30}{c}{'b' * 30}" for c in "xyz"],
    "parameters of a list": [f"parameter {i}" for i in range(12)],
    "one": ["weight"],
}  # fmt: skip


@pytest.mark.parametrize("most", [12, 16, 24])
@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_labels_are_short_all_different_and_whole_where_they_fit(names, most):
    found = labels(names, most)
    assert len(set(found)) == len(names)
    assert max(map(len, found)) <= most
    for name, label in zip(names, found, strict=True):
        assert (label == name) == (len(name) <= most)
        assert label[-3:] == name[-3:]  # its end says what it is


def test_the_layers_of_an_encoder_keep_their_number_and_what_they_are():
    found = labels(NAMES["twelve layers between others"], 24)
    assert found[1] == "e.l.0.s.in_proj_weight"
    assert "e.l.11.s.in_proj_weight" in found
    assert not any("…" in label for label in found)


CHARTS = (plots.sharpness, plots.diagonals, plots.batches)


@pytest.mark.parametrize("draw", CHARTS, ids=lambda draw: draw.__name__)
def test_every_row_of_a_chart_has_a_label_of_its_own_and_tells_the_whole_name(draw):
    found = inspect_model(problems.small.network(0), problems.small.cases, nn.MSELoss(), quick=True)
    names = [f"encoder.layers.{i}.self_attn.in_proj_weight" for i in range(len(found.layers))]
    layers = [replace(x, name=name) for x, name in zip(found.layers, names, strict=True)]
    drawn = draw(replace(found, layers=layers))
    rows = re.findall(r'<text x="([^"]*)"[^>]*><title>([^<]*)</title>([^<]*)</text>', drawn)
    assert [whole for _, whole, _ in rows] == names
    assert len({label for *_, label in rows}) == len(names)
    for x, _, label in rows:  # at 11 units a letter is 6.4 wide at most, on average
        assert float(x) >= 6.4 * len(label)
