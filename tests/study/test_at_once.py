"""Pieces of work at once: after what came before, done before what follows, on any device."""

import pytest
import torch

from equilibrate.study.at_once import at_once

GPU = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
]
DEVICES = ["cpu", pytest.param("cuda", marks=GPU)]


def doubled_after_one_more(rows):
    rows.add_(1)
    at_once([lambda row=row: row.mul_(2) for row in rows], rows.device)


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
