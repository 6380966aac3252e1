"""What ranks are told apart by, and how products are put together for averaging."""

import pytest
import torch

from equilibrate.distributed import checksum, ranks, ranks_of

DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


@pytest.mark.parametrize("dtype", DTYPES)
def test_one_bit_changes_the_checksum(dtype):
    tensor = torch.randn(50, 7).to(dtype).t()  # not contiguous
    before = checksum([tensor, None])
    assert checksum([tensor.clone(), None]) == before
    bits = tensor.view({2: torch.int16, 4: torch.int32, 8: torch.int64}[tensor.element_size()])
    bits[3, 40] ^= 1
    assert checksum([tensor, None]) != before
    bits[3, 40] ^= 1
    assert checksum([tensor, None]) == before
    assert checksum([None, tensor]) != before


def test_buckets_keep_order_dtype_and_limit(monkeypatch):
    monkeypatch.setattr(ranks, "_BUCKET", 10)
    sizes = [4, 5, 3, 20, 1, 2]
    tensors = [torch.zeros(n, dtype=torch.float64 if n == 2 else torch.float32) for n in sizes]
    found = [[t.numel() for t in bucket] for bucket in ranks._buckets(tensors)]
    assert found == [[4, 5], [3], [20], [1], [2]]


def test_one_process_has_no_ranks():
    assert ranks_of(None) is None
    assert ranks_of(False) is None
