"""Pieces of work at once: after what came before, done before what follows, on any device."""

from functools import partial

import pytest
import torch

from equilibrate.study.at_once import at_once

GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]
DEVICES = ["cpu", pytest.param("cuda", marks=GPU)]


def slow(device):
    """Keep a GPU's stream busy for a while, so that whoever does not wait is early."""
    if device.type == "cuda":
        torch.cuda._sleep(2_000_000)


def doubled(row):
    slow(row.device)
    row.mul_(2)


def doubled_after_one_more(rows):
    slow(rows.device)
    rows.add_(1)
    at_once([partial(doubled, row) for row in rows], rows.device)


@pytest.mark.parametrize("device", DEVICES)
def test_what_a_piece_raises_is_raised_after_the_others_are_joined(device):
    row = torch.zeros(3, device=device)

    def wrong():
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        at_once([partial(row.add_, 1), wrong], row.device)
    assert row.tolist() == [1, 1, 1]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("pieces", [1, 2, 5])
def test_pieces_see_what_came_before_and_are_seen_by_what_follows(device, pieces):
    rows, expected = torch.zeros(pieces, 300_000, device=device), 0
    for _ in range(15):
        doubled_after_one_more(rows)
        expected = 2 * (expected + 1)
        assert rows.unique().tolist() == [expected]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_captured_graph_holds_the_pieces():
    rows, graph, expected = torch.zeros(5, 300_000, device="cuda"), torch.cuda.CUDAGraph(), 0
    with torch.cuda.graph(graph):
        doubled_after_one_more(rows)
    for _ in range(15):
        graph.replay()
        expected = 2 * (expected + 1)
        assert rows.unique().tolist() == [expected]
