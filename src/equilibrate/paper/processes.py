"""Pieces of work at the same time, each in a process of its own."""

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import active_children, get_context
from typing import Any, TypeVar

import torch

from equilibrate.study.files import StudyError

Item = TypeVar("Item")


def in_processes(work: Callable[[Item], None], items: Sequence[Item], jobs: int) -> None:
    """Do the work of every item, in their order, `jobs` at the same time.

    The processes share the cores, end with this one, and show their progress in lines: two bars
    would draw over each other. What one of them raises is raised here; the others are then stopped.

    Raises:
        StudyError: a process was killed.
    """
    threads = max(1, _cores() // jobs)
    context, start = get_context("spawn"), (os.getpid(), threads)
    with ProcessPoolExecutor(jobs, context, initializer=_begin, initargs=start) as pool:
        try:
            for done in as_completed([pool.submit(work, item) for item in items]):
                done.result()
        except BaseException as error:
            pool.shutdown(wait=False, cancel_futures=True)
            for process in active_children():
                process.terminate()
            if isinstance(error, BrokenProcessPool):
                raise StudyError(
                    "a process was killed, by the system if its memory ran out. What was recorded "
                    "is kept: run the same command again, with a smaller --jobs"
                ) from error
            raise


def _cores() -> int:
    """Return the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


class _Lines:
    """A stream on which progress comes in lines, whatever it is connected to."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def isatty(self) -> bool:
        """No bar is redrawn here."""
        return False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _begin(parent: int, threads: int) -> None:
    torch.set_num_threads(threads)
    sys.stderr = _Lines(sys.stderr)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """End this process when its parent is gone; a kill loses nothing that is recorded."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)
