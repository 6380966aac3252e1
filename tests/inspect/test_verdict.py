"""The verdict: condition numbers and their intervals against spectra that are known."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch import nn

from equilibrate.curvature import draw
from equilibrate.inspect import verdict
from equilibrate.inspect.findings import QUICK
from equilibrate.inspect.measure import inspect
from equilibrate.inspect.numbers import in_words
from equilibrate.inspect.subject import Subject
from equilibrate.inspect.verdict import beside, condition, gain, mean_size, pinned
from equilibrate.monitor.lanczos import Ritz, lanczos
from equilibrate.monitor.spectrum import Spectrum, spectrum
from equilibrate.study.problem import Problem
from equilibrate.study.progress import Progress
from tests.inspect import problems

CPU = torch.device("cpu")
SIZE = 3000


def _falling(power):
    return torch.arange(1, SIZE + 1, dtype=torch.float64).pow(-power)


def _with_signs(values):
    return values * (1 - 2 * (torch.arange(len(values)) % 3 == 0).double())


# Eigenvalues as networks have them: most of them small, some negative, few large.
SPECTRA = {
    "slowly falling": _falling(0.5),
    "falling, both signs": _with_signs(_falling(1.0)),
    "fast falling": _falling(2.0),
    "most of them zero": torch.cat([_with_signs(_falling(0.7)[:60]), torch.zeros(SIZE - 60)]),
    "as negative as positive": torch.cat([_falling(0.7)[::2], -_falling(0.7)[::2]]),
    "all alike but one": torch.cat([torch.tensor([50.0]), torch.ones(SIZE - 1)]).double(),
}
CASES = pytest.mark.parametrize("values", SPECTRA.values(), ids=SPECTRA)


def _seen(values, seed, steps=24, starts=1):
    zeros = [torch.zeros(len(values), dtype=torch.float64)]
    return spectrum(lambda v: [values * v[0]], zeros, steps=steps, starts=starts, seed=seed)


@CASES
@pytest.mark.parametrize("budget", [(24, 1), (64, 2)], ids=["quick", "full"])
def test_the_interval_holds_the_mean_and_the_condition_number(values, budget):
    """Three deviations: one start in 370 may miss; twelve are taken."""
    exact = float(values.abs().mean())
    for seed in range(12):
        found = _seen(values, seed, *budget)
        assert exact in mean_size(found)
        assert float(values.abs().max()) / exact in condition(found)


@CASES
def test_the_pinned_rule_is_below_its_own_start_and_rises_with_the_products(values):
    """No chance here: q^T |A| q of the very vector that the recursion starts from.

    After ten or twenty products some of these recursions have lost their orthogonality: eigenvalues
    appear twice.
    """
    zeros, steps = [torch.zeros(len(values), dtype=torch.float64)], 96
    slack = SIZE * steps * torch.finfo(torch.float64).eps  # rounding of so many sums of so many
    for seed in range(5):
        (q,) = draw("gaussian", zeros, seed=seed, probe=0)
        exact = float((q.square() * values.abs()).sum() / q.square().sum())
        found = lanczos(lambda v: [values * v[0]], zeros, steps=steps, seed=seed)
        seen = [pinned(found, share=i / steps) / exact for i in range(2, steps + 1)]
        assert all(fewer <= more + slack for fewer, more in pairwise(seen))
        assert seen[-1] <= 1 + slack
        assert seen[22] > 0.5


def test_half_of_the_products_are_those_of_a_shorter_recursion():
    values, zeros = SPECTRA["falling, both signs"], [torch.zeros(SIZE, dtype=torch.float64)]
    long, short = (lanczos(lambda v: [values * v[0]], zeros, steps=s, seed=1) for s in (24, 12))
    assert pinned(long, share=0.5) == pytest.approx(pinned(short), rel=1e-12)


def test_a_model_that_is_measured_exactly_has_no_interval():
    values = torch.tensor([4.0, -2.0, 0.0], dtype=torch.float64)
    found = condition(_seen(values, 0))
    assert found.value == 2.0
    assert found.high - found.low < 2 * 2.1e-5  # what rounding may move the largest by, twice


def _found(problem, quick=True):
    subject = Subject(problem, seed=0, device=CPU, batches=QUICK.batches)
    return inspect(subject, QUICK, quick=quick, progress=Progress("test", 1.0, stream=None))


def _quadratic(curvatures):
    """A loss with a diagonal Hessian, which equilibration makes the identity but for damping."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(len(curvatures), dtype=torch.float64))

        def forward(self, inputs):
            return (curvatures * self.weight.square()).sum() / 2 + 0 * inputs.sum()

    data = torch.ones(20, 1, dtype=torch.float64)
    loss = lambda output, targets: output  # noqa: E731
    return Problem("q", lambda seed: Model(), lambda: (data, data), loss, batch_size=5)


def test_a_badly_scaled_quadratic_says_yes_and_by_how_much():
    """Curvatures h: before max / mean; after h / (h + 0.01 mean), for the diagonal is known."""
    h = torch.logspace(-2, 0, 20, dtype=torch.float64)
    found = _found(_quadratic(h))
    after = h / (h + 0.01 * h.mean())
    by = float(h.max() / h.mean() / (after.max() / after.mean()))
    assert gain(found, "equilibration").value == pytest.approx(by, rel=1e-9)
    said = "Yes, equilibration helps here, but is not seen to do more than Adam's divisor does: "
    assert verdict(found).startswith(said)  # at weights of one the gradient is h as well
    assert f"by {by:.3g} [{by:.3g}, {by:.3g}], from " in verdict(found)


def _exact(values):
    nodes = torch.tensor(values, dtype=torch.float64)
    weights = torch.full_like(nodes, 1 / len(nodes))
    return Spectrum((Ritz(nodes, weights, exact=True),), len(nodes))


def _turned(found, before, after):
    spectra = {**found.spectra, "none": _exact(before), "equilibration": _exact(after)}
    return replace(found, spectra=spectra, parts=())


def test_where_it_makes_the_condition_number_worse_it_says_no_and_by_how_much():
    found = _turned(_found(problems.small), [1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 2.0, 4.0])
    said = verdict(found)
    assert said.startswith("No, equilibration does not help here: it multiplies ")
    assert "by 2 [2, 2], from 1 to 2." in said  # 4 / 2 after 1 / 1


@pytest.mark.parametrize(("after", "said"), [(4.5, "practically nothing"), (6.0, "does not help")])
def test_a_gain_that_nobody_would_see_is_called_none(after, said):
    """From 4 / 2 to 4.5 / 2.125 or 6 / 2.5: by 0.94 and 0.83."""
    found = _turned(_found(problems.small), [2.0, 1.0, 1.0, 4.0], [2.0, 1.0, 1.0, after])
    assert said in verdict(found)


def test_adam_s_divisor_is_said_to_multiply_where_it_makes_it_worse():
    found = _turned(_found(problems.small), [1.0, 1.0, 2.0, 4.0], [1.0, 1.0, 1.0, 1.0])
    worse, better = ({**found.spectra, "gradient": _exact(values)}
                     for values in ([0.0, 2.0, 2.0, 12.0], [1.0, 1.0, 1.0, 1.0]))  # fmt: skip
    # 4 / 2 before, 12 / 4 or 1 / 1 after.
    assert "multiplies it by 1.5 [1.5, 1.5]. " in beside(replace(found, spectra=worse))
    assert "divides it by 2 [2, 2]. " in beside(replace(found, spectra=better))


# Eigenvalues after Adam's divisor, beside 1, 1, 1, 2 after equilibration; what the yes says. The
# condition number is 3.08 before and 1.6 after.
BESIDE_ADAM = {
    "Adam's does nothing": ([1.0, 1.0, 1.0, 10.0], "helps here: it divides "),
    "Adam's does as much": ([1.0, 1.0, 1.0, 2.0], "here, but is not seen to do more than Adam's "),
    "a little less": ([1.0, 1.0, 1.0, 2.1], "here, but is not seen to do more than Adam's "),
    "visibly less": ([1.0, 1.0, 1.0, 2.8], "helps here: it divides "),
    "Adam's does more": ([1.0, 1.0, 1.0, 1.2], "here, but less than Adam's divisor does: it "),
}


@pytest.mark.parametrize(("values", "said"), BESIDE_ADAM.values(), ids=BESIDE_ADAM)
def test_a_yes_says_where_adam_s_divisor_does_as_much(values, said):
    found = _turned(_found(problems.small), [1.0, 1.0, 1.0, 10.0], [1.0, 1.0, 1.0, 2.0])
    found = replace(found, spectra={**found.spectra, "gradient": _exact(values)})
    assert verdict(found).startswith("Yes, equilibration helps")
    assert said in verdict(found)


def test_a_yes_whose_interval_overlaps_adam_s_does_not_claim_more():
    """1.12 / 0.156 after equilibration, 1.1 / 0.136 after Adam's: less than products tell."""
    shifts = {"none": 0.0, "gradient": 0.1, "equilibration": 0.12}
    spectra = {kind: _seen(_falling(0.5) + shift, 0) for kind, shift in shifts.items()}
    found = _found(problems.small)
    found = replace(found, spectra={**found.spectra, **spectra})
    assert gain(found, "equilibration").value > 1.1 * gain(found, "gradient").value
    assert "here, but is not seen to do more than Adam's " in verdict(found)


@pytest.mark.parametrize("quick", [True, False])
def test_where_the_interval_holds_one_it_does_not_claim_help(quick):
    found = _found(problems.wide, quick)
    by = gain(found, "equilibration")
    assert by.low < 1 < by.high
    said = verdict(found)
    assert said.startswith("No help of equilibration is seen here: ")
    assert in_words(by) in said
    assert ("without --quick" in said) == quick
    assert f"Adam's divisor, divides it by {in_words(gain(found, 'gradient'))}. " in beside(found)


def test_the_gain_is_the_ratio_of_what_dense_matrices_say():
    """A complete spectrum is the dense one: here before, from the inspection's own Hessian."""
    found = _found(problems.small, quick=False)
    assert not found.spectra["none"].complete
    subject = Subject(problems.small, seed=0, device=CPU, batches=1)
    rows = [subject.hessian(0)(list(v)) for v in _axes(subject.parameters)]
    matrix = torch.stack([torch.cat([x.flatten() for x in row]) for row in rows])
    values = torch.linalg.eigvalsh((matrix + matrix.mT) / 2).abs()
    assert float(values.max() / values.mean()) in condition(found.spectra["none"])
    assert not math.isinf(condition(found.spectra["none"]).high)


def _axes(parameters):
    size = sum(p.numel() for p in parameters)
    for row in torch.eye(size, dtype=torch.float64):
        pieces = row.split([p.numel() for p in parameters])
        yield [x.view_as(p) for x, p in zip(pieces, parameters, strict=True)]
