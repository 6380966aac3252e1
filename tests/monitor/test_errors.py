"""What probes leave open: against exact scatters of normals, batch by batch."""

import math

import pytest
import torch

from equilibrate.monitor.errors import error_by_probes, one_probe_error

ELEMENTS, PROBES = 4000, 64

# The scale of h in every batch: one batch, alike, and as different as batches may be.
SCALES = {"one": [1.0], "alike": [1.0, 1.0], "apart": [1.0, 3.0, 0.5]}
CASES = pytest.mark.parametrize("scales", SCALES.values(), ids=SCALES.keys())


def _normals(scales):
    """Probes of every batch in turn, as they are taken, each element in units of its own."""
    generator = torch.Generator().manual_seed(1)
    h = torch.randn(PROBES * len(scales), ELEMENTS, dtype=torch.float64, generator=generator)
    batches = [i % len(scales) for i in range(len(h))]
    units = torch.logspace(-3, 3, ELEMENTS, dtype=torch.float64)
    return h * torch.tensor(scales, dtype=torch.float64)[batches].unsqueeze(1) * units, batches


def _chi(k):
    """The scatter of the root of a mean of k squares of normals, over the root of their mean."""
    mean = math.sqrt(2 / k) * math.exp(math.lgamma((k + 1) / 2) - math.lgamma(k / 2))
    return math.sqrt(1 - mean**2)


@CASES
def test_the_law_of_normals_whatever_batches_differ_by(scales):
    """c = 2 of one square: sqrt(2) / 2. A variance of 64 squares is off by 0.3, 4,000 are not."""
    assert one_probe_error(*_normals(scales)) == pytest.approx(math.sqrt(2) / 2, rel=0.02)


@CASES
def test_small_numbers_are_measured_and_large_ones_follow_the_law(scales):
    """Of k up to half of a batch's probes the exact scatter, past it 1 / sqrt(k)."""
    counts = [1, 2, 8, 32, 64, 256]
    history, batches = _normals(scales)
    found = error_by_probes(history, counts, batches)
    law = one_probe_error(history, batches)
    measured, beyond = found[:4], found[4:]
    assert measured == pytest.approx([_chi(k) for k in counts[:4]], rel=0.05)
    assert beyond == pytest.approx([law / math.sqrt(k) for k in counts[4:]])


def test_without_batches_their_difference_counts_as_noise():
    history, batches = _normals(SCALES["apart"])
    assert one_probe_error(history) > 1.2 * one_probe_error(history, batches)


@pytest.mark.parametrize("probes", [0, 1])
def test_too_few_probes_tell_nothing(probes):
    history = torch.ones(probes, 3)
    assert math.isnan(one_probe_error(history))
    assert all(math.isnan(e) for e in error_by_probes(history, [1, 4]))
