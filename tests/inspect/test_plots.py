"""Marks of the report: an arrow where the axis ends, hollow where nothing was measured."""

import re
from dataclasses import replace

import pytest
import torch

from equilibrate.inspect import plots
from equilibrate.inspect.findings import QUICK
from equilibrate.inspect.measure import COUNTS, inspect
from equilibrate.inspect.subject import Subject
from equilibrate.inspect.svg import LETTER, WIDTH
from equilibrate.study.progress import Progress
from tests.inspect import problems


@pytest.fixture(scope="module")
def found():
    subject = Subject(problems.small, seed=0, device=torch.device("cpu"), batches=QUICK.batches)
    return inspect(subject, QUICK, quick=True, progress=Progress("test", 1.0, stream=None))


def _arrows(drawn):
    return re.findall(r'<path class="mark"[^>]*d="M(\d[^L]*)L[^>]*Z"><title>([^<]*)</title>', drawn)


@pytest.mark.parametrize(
    ("error", "told"),
    [(0.1, None), (0.004, "0.4% from batch"), (0.0, "less than these probes can show")],
)
def test_noise_below_the_axis_is_an_arrow_that_tells_its_number(found, error, told):
    layers = [replace(x, relative_error=0.2, batch_error=0.2) for x in found.layers]
    layers[0] = replace(layers[0], batch_error=error)
    arrows = _arrows(plots.batches(replace(found, layers=layers)))
    assert [told in words for _, words in arrows] == ([] if told is None else [True])


SAYS_WHY = "Nothing curves upwards: no rate overshoots."


@pytest.mark.parametrize("plot", [plots.limits, plots.sharpness])
def test_where_nothing_curves_upwards_the_plot_says_so(found, plot):
    assert SAYS_WHY not in plot(found)
    spectra = {}
    for kind, seen in found.spectra.items():
        turned = [replace(r, nodes=-r.nodes.abs().flip(0) - 1.0) for r in seen.ritz]
        spectra[kind] = replace(seen, ritz=tuple(turned))
    drawn = plot(replace(found, spectra=spectra))
    assert SAYS_WHY in drawn
    assert len(SAYS_WHY) * LETTER < WIDTH  # on one line


def test_a_plot_of_no_layers_is_drawn(found):
    layers = [replace(layer, blocks={}) for layer in found.layers]
    assert "<svg" in plots.sharpness(replace(found, layers=layers))


@pytest.mark.parametrize("probes", [2, 4, 64])
def test_what_is_not_measured_is_hollow(found, probes):
    measured = [k for k in COUNTS if 2 * k <= probes]
    drawn = plots.probes(replace(found, budget=replace(QUICK, probes=probes)))
    hollow = re.findall(r'fill="#fff"[^>]*><title>(\d+) probes', drawn)
    filled = re.findall(r'fill="#0[^"]*"><title>(\d+) probes', drawn)
    assert ([int(k) for k in filled], [int(k) for k in hollow]) == (
        measured,
        [k for k in COUNTS if k not in measured],
    )
