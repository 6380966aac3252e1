"""Whole iterations as CUDA graphs: one graph for ordinary ones, one for those that probe.

This is the recipe of docs/speed.md: ordinary iterations first, until a probe is due; the next one
is captured and measures, the one after it is captured and does not. Capturing runs nothing.
"""

import torch

from benchmarks.loops import EVERY, Plain

_FIRST = 3  # iterations that let libraries and compilers settle


class Captured:
    """A loop whose iterations are replayed."""

    def __init__(self, loop: Plain) -> None:
        self.loop, self.hessian, self.problem = loop, loop.hessian, loop.problem
        self._settle()
        self.probing = self._capture() if loop.hessian else None
        self.ordinary = self._capture()

    def _settle(self) -> None:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(_FIRST):
                self.loop.iterate()
            while self.loop.hessian and not self.loop.optimizer.probe_due:
                self.loop.iterate()
            if self.loop.hessian:  # once more: a probing iteration with all its numbers settled
                self.loop.iterate()
            while self.loop.hessian and not self.loop.optimizer.probe_due:
                self.loop.iterate()
        torch.cuda.current_stream().wait_stream(stream)

    def _capture(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.loop.iterate()
        return graph

    def block(self) -> None:
        if self.probing is not None:
            self.probing.replay()
        for _ in range(EVERY - (self.probing is not None)):
            self.ordinary.replay()

    def state_bytes(self) -> int:
        return self.loop.state_bytes()
