"""Folding in C++ is folding one tensor after the other."""

import pytest
import torch

from equilibrate.diagonals import equilibration, fused, jacobi, one_by_one

SHAPES = [(3, 5), (), (0,), (40_000,)]


def _folded(run, kind, dtype, size, fine):
    torch.manual_seed(0)
    kept = [size * torch.randn(s, dtype=dtype).clamp_min(0) for s in SHAPES]
    products = [size * torch.randn(s, dtype=dtype).clamp_min(0) for s in SHAPES]
    if not fine:
        products[0][0, 0] = torch.inf
    weights = torch.tensor([3.0, 1.0, 2.0, 1.5], dtype=torch.float64)
    return kept, run(kind, kept, products, *kind.shares(weights), torch.tensor(fine))


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("fine", [True, False])
@pytest.mark.parametrize("size", [1.0, 1e-30, 1e30])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("kind", [equilibration, jacobi], ids=lambda kind: kind.__name__)
def test_folding_in_cpp_is_folding_one_by_one(kind, dtype, size, fine, threads, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    expected, (sums, counts) = _folded(one_by_one.fold, kind, dtype, size, fine)
    found, (totals, seen) = _folded(fused.fold, kind, dtype, size, fine)
    eps = torch.finfo(dtype).eps
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=4 * eps, atol=0)
    torch.testing.assert_close(totals, sums, rtol=1e-6 if dtype == torch.float32 else 1e-12, atol=0)
    assert seen.tolist() == counts.tolist()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_what_cpp_is_not_built_for_is_folded_one_by_one(dtype):
    expected, (sums, counts) = _folded(one_by_one.fold, equilibration, dtype, 1.0, True)
    found, (totals, seen) = _folded(fused.fold, equilibration, dtype, 1.0, True)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    assert (totals.tolist(), seen.tolist()) == (sums.tolist(), counts.tolist())
