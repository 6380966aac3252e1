"""Section 8 of the paper: the distance between two diagonals."""

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
