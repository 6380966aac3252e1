"""v is a counter-based function: of its seed, probe, parameter and element, and of nothing else."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from equilibrate import estimate_equilibration, estimate_jacobi
from equilibrate.curvature import DISTRIBUTIONS, draw, draw_elements
from equilibrate.curvature.vectors import draw_like, draw_signs_together

distributions = pytest.mark.parametrize("distribution", DISTRIBUTIONS)
COUNT = 200_000


@distributions
@given(bounds=st.tuples(st.integers(0, 500), st.integers(0, 500)), seed=st.integers(-9, 9))
def test_a_shard_draws_its_part_of_the_whole(distribution, bounds, seed):
    start, stop = sorted(bounds)
    whole = draw_elements(distribution, 0, 501, seed=seed, probe=2, parameter=1)
    part = draw_elements(distribution, start, stop, seed=seed, probe=2, parameter=1)
    torch.testing.assert_close(part, whole[start:stop], rtol=0, atol=0)


@distributions
def test_a_stack_draws_what_each_trial_draws(distribution):
    seeds = torch.tensor([3, 4, 3])
    probes = torch.tensor([0, 0, 7])
    stack = draw_elements(distribution, 5, 90, seed=seeds, probe=probes, parameter=2)
    for row, seed, probe in zip(stack, seeds.tolist(), probes.tolist(), strict=True):
        alone = draw_elements(distribution, 5, 90, seed=seed, probe=probe, parameter=2)
        torch.testing.assert_close(row, alone, rtol=0, atol=0)


@distributions
def test_vectors_differ_by_seed_probe_and_parameter(distribution):
    base = {"seed": 0, "probe": 0, "parameter": 0}
    vectors = [draw_elements(distribution, 0, COUNT, **base)]
    for name in base:
        for value in (1, 2, 3):
            vectors.append(draw_elements(distribution, 0, COUNT, **(base | {name: value})))
    correlations = torch.corrcoef(torch.stack(vectors)) - torch.eye(len(vectors))
    # 45 pairs, each ~ N(0, 1/n): five standard deviations are exceeded once in 40,000 runs.
    assert correlations.abs().max() < 5 / math.sqrt(COUNT)


@distributions
def test_moments_are_those_of_independent_unit_variables(distribution):
    v = draw_elements(distribution, 0, COUNT, seed=11, probe=3, parameter=0).double()
    fourth = {"gaussian": 3.0, "rademacher": 1.0}[distribution]
    deviation = {"gaussian": math.sqrt(96), "rademacher": 1e-9}[distribution]  # of v^4
    spread = 5 / math.sqrt(COUNT)
    assert abs(v.mean()) < spread
    assert abs(v.square().mean() - 1) < spread * math.sqrt(fourth - 1) + 1e-9
    assert abs((v**4).mean() - fourth) < spread * deviation
    for lag in (1, 2, 31, 32, 33, 64):
        assert abs((v[lag:] * v[:-lag]).mean()) < spread


def test_normals_follow_the_normal_distribution():
    """Kolmogorov-Smirnov: sqrt(n) sup |F_n - F| exceeds 1.95 once in a thousand."""
    v = draw_elements("gaussian", 0, COUNT, seed=5, probe=1, parameter=4).double().sort().values
    expected = torch.special.ndtr(v)
    steps = torch.arange(1, COUNT + 1) / COUNT
    assert (steps - expected).abs().max() * math.sqrt(COUNT) < 1.95


@distributions
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_values_do_not_depend_on_the_dtype_but_for_rounding(distribution, dtype):
    parameters = [torch.zeros(3, 5), torch.zeros(()), torch.zeros(0, 2)]
    exact = draw(distribution, parameters, seed=1, probe=1)
    cast = draw(distribution, [p.to(dtype) for p in parameters], seed=1, probe=1)
    for e, c in zip(exact, cast, strict=True):
        assert c.dtype == dtype
        assert torch.equal(e.to(dtype), c)


@distributions
def test_drawing_leaves_the_global_generator_alone(distribution):
    before = torch.get_rng_state()
    draw(distribution, [torch.zeros(100)])
    assert torch.equal(before, torch.get_rng_state())


def test_signs_keep_their_values_for_ever():
    """A saved run continues with the same vectors under a later version of this package."""
    signs = draw_elements("rademacher", 0, 16, seed=0, probe=0, parameter=0)
    assert "".join("+" if s > 0 else "-" for s in signs) == "+-++-+-+--+-++++"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("seed", "probe"), [(0, 0), (2**62, 12_345), (-5, 1)])
def test_signs_drawn_together_are_those_drawn_alone(dtype, seed, probe):
    shapes = [(), (0,), (64,), (65, 3), (1,), (128,), (2, 0)]
    likes, numbers = [torch.zeros(s, dtype=dtype) for s in shapes], [9, 2, 3, 70, 5, 0, 1]
    together = draw_signs_together(likes, numbers, seed=seed, probe=probe)
    for like, number, found in zip(likes, numbers, together, strict=True):
        alone = draw_like("rademacher", like, seed=seed, probe=probe, parameter=number)
        assert torch.equal(found, alone)
        assert found.dtype == dtype


LIKE = [torch.zeros(2)]
DRAWING = {
    "draw": lambda name: draw(name, LIKE),
    "equilibration": lambda name: estimate_equilibration(lambda v: v, LIKE, distribution=name),
    "jacobi": lambda name: estimate_jacobi(lambda v: v, LIKE, distribution=name),
}


@pytest.mark.parametrize("way", DRAWING)
@pytest.mark.parametrize("name", ["normal", "Gaussian", None])
def test_an_unknown_distribution_is_told_which_there_are(way, name):
    with pytest.raises(ValueError, match=f"Invalid distribution: {name!r}.*gaussian.*rademacher"):
        DRAWING[way](name)
