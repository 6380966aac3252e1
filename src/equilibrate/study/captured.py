"""Running one function again and again: as it is on a CPU, as a captured CUDA graph on a GPU."""

from collections.abc import Callable

import torch

_BEFORE_CAPTURE = 2  # ordinary calls that let libraries and compilers settle


class Captured:
    """A function without arguments that changes tensors in place.

    On a GPU its first calls run as they are and do their work; the next one is captured, and from
    then on one launch replays it. What changes between calls must live in tensors.
    """

    CALLS = _BEFORE_CAPTURE + 1
    """After so many calls a function is captured."""

    def __init__(self, function: Callable[[], None], device: torch.device) -> None:
        self._function = function
        self._on_gpu = device.type == "cuda"
        self._calls = 0
        self._graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        """Do once what the function does."""
        if not self._on_gpu:
            self._function()
            return
        if self._graph is not None:
            self._graph.replay()
            return
        if self._calls < _BEFORE_CAPTURE:
            self._on_a_side_stream()
        else:
            self._graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._graph):  # records, does not run
                self._function()
            self._graph.replay()
        self._calls += 1

    def _on_a_side_stream(self) -> None:
        """Run as the capture will: not on the default stream."""
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self._function()
        torch.cuda.current_stream().wait_stream(stream)
