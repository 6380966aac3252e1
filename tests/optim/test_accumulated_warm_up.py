"""The warm-up sees the first micro-batch alone, n times; every later probe sees the whole step."""

import pytest
import torch

from equilibrate import ESGD

PARTS = 4
# Curvature by micro-batch, of four elements: alike, in the first alone, not in the first, of both
# signs. Vectors of signs measure such a diagonal exactly.
CURVATURE = torch.tensor(
    [[1.0, 1.0, 0.0, 1.0], [1.0, 0.0, 1.0, -1.0], [1.0, 0.0, 1.0, 1.0], [1.0, 0.0, 1.0, 0.0]]
)


def _steps(count: int, **options) -> torch.Tensor:
    """Return the diagonal after steps of four micro-batches each, all of which are probed."""
    weight = torch.ones(4, requires_grad=True)
    optimizer = ESGD([weight], lr=0.0, probe_every=1, **options)
    for _ in range(count):
        for curvature in CURVATURE:
            loss = (curvature * weight**2).sum() / 2
            optimizer.probe(loss)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return optimizer.diagonal()[0]


WHOLE = CURVATURE.sum(0).abs()


def test_the_first_step_counts_the_first_micro_batch_n_times():
    torch.testing.assert_close(_steps(1), PARTS * CURVATURE[0].abs())


def test_without_a_warm_up_it_is_the_whole_from_the_first_step_on():
    torch.testing.assert_close(_steps(1, warmup_probes=1), WHOLE)


@pytest.mark.parametrize("later", [20, 100])
def test_later_probes_average_it_out(later):
    """D^2 is the mean over the 20 vectors of the warm-up and those that came later."""
    mean = 20 * (PARTS * CURVATURE[0]).square() + later * WHOLE.square()
    torch.testing.assert_close(_steps(later + 1, decay=None), (mean / (20 + later)).sqrt())
