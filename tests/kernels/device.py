"""Where the tests run kernels: on a GPU, or on the CPU by triton's interpreter."""

import os

import pytest
import torch

ON_GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda" if ON_GPU else "cpu")
RUNS_KERNELS = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not ON_GPU and os.environ.get("TRITON_INTERPRET") != "1",
        reason="needs a GPU, or the CPU as one",
    ),
]

SHAPES = [(5, 3), (7,), (10_000,), (1,), (64,), (4096,), (4097,), *[(2,)] * 70]


def random(shape, dtype=torch.float32):
    return torch.randn(shape, dtype=torch.float64).to(dtype).to(DEVICE)
