"""The workers of a Ray cluster, as a crew sees them: slots, errands, streams of messages."""

import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import ray
import torch
from ray.exceptions import (
    NodeDiedError,
    ObjectLostError,
    OutOfMemoryError,
    RaySystemError,
    RayTaskError,
    TaskUnschedulableError,
    WorkerCrashedError,
)

from equilibrate.study import files
from equilibrate.study.cluster.errand import run
from equilibrate.study.cluster.messages import Errand, Lost, Message
from equilibrate.study.course import Course
from equilibrate.study.files import say

_LOOK_SECONDS = 1.0  # between two looks at the cluster's nodes
_AHEAD = 2  # messages a worker may be ahead: what is lost with it is little


class Workers:
    """What a cluster has free for the errands of one study.

    Args:
        threads: cores of an errand.
        gpu: whether an errand needs a GPU of its own.
    """

    def __init__(self, threads: int, gpu: bool) -> None:
        self.threads, self.gpu = threads, gpu
        needs = {"num_cpus": threads, "num_gpus": int(gpu), "max_retries": 0}
        self._call = ray.remote(**needs)(_call)
        self._train = ray.remote(
            **needs, num_returns="streaming", _generator_backpressure_num_objects=_AHEAD
        )(_train)
        self._slots, self._looked = 0, -_LOOK_SECONDS
        self._told = False

    def share(self, course: Course) -> Any:
        """Put what all errands need, problem and data, where every worker can fetch it."""
        return ray.put(course)

    def start(self, work: Any, errand: Errand) -> Any:
        """Send an errand; return the stream of its messages."""
        return self._train.remote([work], errand)  # in a list: fetched by the worker, and kept

    def ready(self, streams: list[Any]) -> list[Any]:
        """Return the streams that have something to say, after a second at most."""
        if not streams:
            time.sleep(_LOOK_SECONDS)
            return []
        found: list[Any] = ray.wait(streams, timeout=_LOOK_SECONDS, fetch_local=False)[0]
        return found

    def next(self, stream: Any) -> Message:
        """Return the next message of a stream.

        Raises:
            Lost: its worker is gone, or the message with its machine.
            Exception: whatever the errand raised.
        """
        try:
            message: Message = ray.get(next(stream))
        except RayTaskError as error:
            raise error.cause from None
        except StopIteration:
            raise Lost("its messages ended before its errand") from None
        except (
            NodeDiedError, ObjectLostError, OutOfMemoryError, RaySystemError,
            TaskUnschedulableError, WorkerCrashedError,
        ) as error:  # fmt: skip
            raise Lost(str(error).splitlines()[0]) from error
        return message

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a function on one worker, with the threads of an errand; return its result."""
        try:
            result, said = ray.get(self._call.remote(self.threads, function, arguments))
        except RayTaskError as error:
            raise error.cause from None
        for text in said:
            say(text)
        return result

    def slots(self) -> int:
        """Return how many errands the cluster can hold now; nodes come and go."""
        if time.monotonic() - self._looked >= _LOOK_SECONDS:
            self._looked = time.monotonic()
            alive = [node["Resources"] for node in ray.nodes() if node["Alive"]]
            self._slots = sum(map(self._on_node, alive))
            if not self._slots and not self._told:
                self._told = True
                say(f"the cluster has no machine with {self._needs()}; waiting until one joins")
        return self._slots

    def _on_node(self, resources: dict[str, float]) -> int:
        slots = int(resources.get("CPU", 0)) // self.threads
        return min(slots, int(resources.get("GPU", 0))) if self.gpu else slots

    def _needs(self) -> str:
        cores = f"{self.threads} core{'s' if self.threads > 1 else ''}"
        return f"{cores} and a GPU" if self.gpu else cores


def _train(shared: list[Any], errand: Errand) -> Iterator[Message]:
    yield from run(errand, _fetched(shared[0]))


@lru_cache(maxsize=1)
def _fetched(work: Any) -> Course:
    """What a study's errands share: fetched once a process, compiled parts are kept with it."""
    course: Course = ray.get(work)
    return course


def _call(threads: int, function: Callable[..., Any], arguments: Any) -> tuple[Any, list[str]]:
    torch.set_num_threads(threads)
    before = len(files.SAID)
    result = function(*arguments)
    return result, files.SAID[before:]
