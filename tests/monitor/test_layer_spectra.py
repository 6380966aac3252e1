"""Each layer's own block of the Hessian: cases times laws against the dense block, and turns."""

from functools import cache

import pytest
import torch
from torch import nn

from equilibrate import ESGD, hessian
from equilibrate.exact import transformed
from equilibrate.monitor import Monitor
from equilibrate.monitor.denominators import divisor_of
from equilibrate.monitor.layer_spectra import block_spectra
from tests.cases import CASES, CONVOLUTION, DEEP, NETWORK
from tests.monitor.test_spectrum import LAWS


@cache
def _blocks(case, steps):
    """Of every layer: spectra and exact eigenvalues, before and after preconditioning."""
    parameters, loss = case.parameters_and_loss()
    matrix = hessian(loss(), parameters)
    places = torch.arange(len(matrix)).split([p.numel() for p in parameters])
    found = []
    for p, own in zip(parameters, places, strict=True):
        divisor = p.detach().abs() + 0.1
        block = matrix[own][:, own]
        dense = [(block + block.mT) / 2, transformed(block, divisor.flatten())]
        spectra = block_spectra(loss(), p, divisor, steps=steps, seed=steps)
        found += zip(spectra, map(torch.linalg.eigvalsh, dense), strict=True)
    return found


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@pytest.mark.parametrize("steps", [8, 16])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_dense_block_lies_in_the_interval(case, steps, law):
    for found, values in _blocks(case, steps):
        law(found, values)


def test_intervals_are_narrow():
    """What is said of the larger layers says something: within a third of the radius."""
    wide = [found for found, _ in _blocks(DEEP, 16) if not found.complete]
    assert len(wide) > 8
    for found in wide:
        assert found.largest.high - found.largest.low < found.radius.value / 3


@pytest.mark.parametrize("case", [NETWORK, CONVOLUTION], ids=lambda case: case.name)
def test_the_record_of_a_training_run(case):
    """All layers at once: the blocks of the very Hessian, divided by what ESGD divides by."""
    parameters, loss = case.parameters_and_loss()
    optimizer = ESGD(parameters, lr=0.02)
    optimizer.probe(loss())
    named = [(f"p{i}", p) for i, p in enumerate(parameters)]
    monitor = Monitor(named, optimizer, lambda r: None, steps=150, layer_spectra=99)
    record = monitor(loss())
    matrix = hessian(loss(), parameters)
    places = torch.arange(len(matrix)).split([p.numel() for p in parameters])
    for (name, p), own in zip(named, places, strict=True):
        block = matrix[own][:, own]
        divisor = divisor_of(optimizer, p, optimizer.param_groups[0]).divisor.flatten()
        values = torch.linalg.eigvalsh((block + block.mT) / 2)
        after = torch.linalg.eigvalsh(transformed(block, divisor))
        sizes = values.abs().sort().values
        told = {
            "sharpness": values[-1],
            "smallest": values[0],
            "condition_top_tenth": sizes[-1] / sizes[-(-9 * len(sizes) // 10) - 1],
            "preconditioned/sharpness": after[-1],
            "preconditioned/sharpness_times_lr": 0.02 * after[-1],
        }
        for key, exact in told.items():
            entry = f"layers/{name}/{key}"
            assert record[entry] == pytest.approx(float(exact), rel=1e-6), entry
            if "lr" not in key:
                low, high = (record[f"{entry}/{side}"] for side in ("low", "high"))
                rounding = 1e-9 * abs(float(exact))
                assert low - rounding <= float(exact) <= high + rounding, entry


def test_no_layer_is_sharper_than_the_model():
    parameters, loss = DEEP.parameters_and_loss()
    named = [(f"p{i}", p) for i, p in enumerate(parameters)]
    optimizer = torch.optim.SGD(parameters)
    record = Monitor(named, optimizer, lambda r: None, layer_spectra=8)(loss())
    for which in ("sharpness", "preconditioned/sharpness"):
        layers = [record[f"layers/{name}/{which}"] for name, _ in named]
        assert 0 < max(layers) <= record[f"{which}/high"]


def _shown(model, **options):
    """The layers with a spectrum in each of four records."""
    seen = []
    optimizer = torch.optim.SGD(model.parameters())
    monitor = Monitor(model, optimizer, seen.append, every=1, budget=None, **options)
    for _ in range(4):
        monitor(model(torch.ones(2, 3)).square().mean())
    return [[k.split("/")[1] for k in r if k.startswith("layers") and k.endswith("/smallest")]
            for r in seen]  # fmt: skip


TURNS = {
    "none by default": ({}, [[], [], [], []]),
    "two in turn": (
        {"layer_spectra": 2},
        [["0.weight", "0.bias"], ["0.weight", "2.weight"], ["0.bias", "2.weight"],
         ["0.weight", "0.bias"]],
    ),
    "all": ({"layer_spectra": 9}, [["0.weight", "0.bias", "2.weight"]] * 4),
    "by name": ({"layer_spectra": ["2.weight"]}, [["2.weight"]] * 4),
    "one name": ({"layer_spectra": "0.bias"}, [["0.bias"]] * 4),
}  # fmt: skip


@pytest.mark.parametrize(("options", "expected"), TURNS.values(), ids=TURNS.keys())
def test_which_layers_are_shown(options, expected):
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2, bias=False))
    assert _shown(model, **options) == expected


def test_an_unused_layer_has_no_curvature_and_an_empty_one_no_turn():
    used, unused = torch.rand(4, requires_grad=True), torch.ones(3, requires_grad=True)
    named = [("empty", torch.zeros(0, 3, requires_grad=True)), ("used", used), ("unused", unused)]
    optimizer = torch.optim.SGD([p for _, p in named])
    record = Monitor(named, optimizer, lambda r: None, layer_spectra=3)(used.sin().sum())
    assert record["layers/unused/sharpness"] == 0
    assert record["layers/unused/preconditioned/sharpness"] == 0
    exact = float((-used.detach().sin()).max())
    assert record["layers/used/sharpness"] == pytest.approx(exact, rel=1e-5)
    assert "layers/empty/sharpness" not in record


@pytest.mark.parametrize("wrong", [-1, ["0.weigth"], "weight"])
def test_a_wrong_choice_is_explained(wrong):
    model = nn.Sequential(nn.Linear(2, 1))
    with pytest.raises(ValueError, match="layer_spectra"):
        Monitor(model, torch.optim.SGD(model.parameters()), print, layer_spectra=wrong)
