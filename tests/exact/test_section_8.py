"""Section 8 of the paper: the distance between two diagonals."""

import itertools

import pytest
import torch

from equilibrate.exact import cosine_distance
from tests.exact.matrices import DOUBLE


@pytest.mark.parametrize("seed", range(5))
def test_the_cosine_distance_is_one_minus_the_cosine_and_knows_no_norm(seed):
    generator = torch.Generator().manual_seed(seed)
    u, v = torch.randn(2, 50, dtype=DOUBLE, generator=generator)
    expected = 1 - torch.nn.functional.cosine_similarity(u, v, dim=0)
    # Sums of 50 products: some tens of roundings.
    torch.testing.assert_close(cosine_distance(u, v), expected, rtol=0, atol=1e-14)
    torch.testing.assert_close(cosine_distance(7 * u, v / 3), expected, rtol=0, atol=1e-14)
    assert 0 <= cosine_distance(u.abs(), v.abs()) <= 1  # so that S23 says nothing
    assert 1 <= cosine_distance(u.abs(), -v.abs()) <= 2


DTYPES = [torch.float16, torch.bfloat16, torch.float32, DOUBLE]
# 300^2 overflows a float16, and so does a sum of 70,000 ones.
VECTORS = {
    "tenths": torch.full((3,), 0.1),
    "hundreds": torch.full((3,), 300.0),
    "many": torch.ones(70_000),
    "one": torch.tensor(2.0),
    "matrix": torch.arange(6.0).view(2, 3),
}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", VECTORS)
def test_a_vector_is_at_no_distance_from_itself_and_at_two_from_its_opposite(name, dtype):
    vector = VECTORS[name].to(dtype)
    assert float(cosine_distance(vector, vector)) == 0.0
    assert float(cosine_distance(vector, 2 * vector)) == 0.0
    found = cosine_distance(vector, -vector)
    assert found.dtype == dtype
    # Half a sum of squares of numbers that are each known to two roundings, or kept in float32.
    assert 2 - 4 * torch.finfo(dtype).eps <= float(found) <= 2


@pytest.mark.parametrize(("first", "second"), itertools.product(DTYPES, repeat=2))
def test_the_wider_dtype_is_the_one_of_the_distance(first, second):
    u, v = torch.tensor([1.0, 0.0], dtype=first), torch.tensor([0.0, 5.0], dtype=second)
    assert cosine_distance(u, v) == torch.tensor(1.0)
    assert cosine_distance(u, v).dtype == torch.promote_types(first, second)


@pytest.mark.parametrize("angle", [1e-2, 1e-4, 1e-6])
def test_a_small_angle_is_seen(angle):
    """1 - cos(a) is a^2 / 2, which one less a cosine near one loses below sqrt(eps)."""
    u = torch.tensor([1.0, 0.0])
    v = torch.tensor([1.0, angle])
    # tan(a) = angle: a^2 / 2 up to a^4.
    assert float(cosine_distance(u, v)) == pytest.approx(angle**2 / 2, rel=1e-4)


@pytest.mark.parametrize("shift", [0.0, 1.0])
def test_many_entries_lose_no_digits(shift):
    """A float32 that adds up squares one by one is 3e-5 off or more after two million."""
    generator = torch.Generator().manual_seed(0)
    u, v = torch.randn(2, 2**21, generator=generator) + shift
    # Sums in pairs round once per halving, 21 times, in two norms and in the distance.
    atol = 3 * 21 * torch.finfo(torch.float32).eps
    true = float(cosine_distance(u.double(), v.double()))
    assert float(cosine_distance(u, v)) == pytest.approx(true, abs=atol)
