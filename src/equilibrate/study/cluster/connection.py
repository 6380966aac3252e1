"""The way to a cluster: connect, bring the user's own modules along, leave."""

import importlib.util
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from equilibrate.study.files import StudyError

if TYPE_CHECKING:
    from equilibrate.study.cluster.crew import ClusterCrew

LOCAL = "local"


@contextmanager
def connected(address: str, *, threads: int = 1, gpu: bool = False) -> Iterator["ClusterCrew"]:
    """Connect to a Ray cluster, and leave it at the end.

    Args:
        address: HOST:PORT of a running cluster's head, or `local` for one on this machine alone.
        threads: of a group of trials; a worker with N cores trains N // threads groups at once.
        gpu: whether every group trains on a GPU of its own.

    Raises:
        StudyError: Ray is not installed, or nothing answers there; the text says what to do.
    """
    if importlib.util.find_spec("ray") is None:
        raise StudyError("--cluster needs Ray: pip install 'equilibrate[cluster]'")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray would send statistics home
    import ray

    from equilibrate.study.cluster.crew import ClusterCrew
    from equilibrate.study.cluster.workers import Workers

    _connect(ray, address)
    try:
        _bring_own_modules()
        yield ClusterCrew(Workers(threads, gpu))
    finally:
        ray.shutdown()


def _connect(ray: Any, address: str) -> None:
    quiet = {"log_to_driver": False, "logging_level": "ERROR"}
    local = {"include_dashboard": False} if address == LOCAL else {}
    try:
        with _own_signals():
            ray.init(address=address, **local, **quiet)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise StudyError(
            f"no Ray cluster that can be used at {address} ({reason}). Start one: `ray start "
            f"--head` here, `ray start --address=HOST:PORT` on every other machine, then "
            f"--cluster HOST:PORT; or --cluster {LOCAL} for this machine alone"
        ) from error


@contextmanager
def _own_signals() -> Iterator[None]:
    """Keep the command's way to stop: Ray takes SIGTERM for itself, and aborts on it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    earlier = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, earlier)


def _bring_own_modules() -> None:
    """Send modules of the present folder along with what is made of them.

    Workers elsewhere have no such files. Installed packages are theirs to have.
    """
    from ray import cloudpickle

    here = Path.cwd()
    for module in list(sys.modules.values()):
        if _is_own(module, here):
            cloudpickle.register_pickle_by_value(module)


def _is_own(module: ModuleType, folder: Path) -> bool:
    file = getattr(module, "__file__", None)
    name = module.__name__.partition(".")[0]
    if not file or name in ("__main__", "equilibrate"):
        return False
    path = Path(file)
    return path.is_relative_to(folder) and not path.is_relative_to(sys.prefix)
