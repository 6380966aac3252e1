"""What made a record: versions, commit, machine, device, threads, seed, command, time, seconds."""

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import torch

import equilibrate


def versions() -> dict[str, str]:
    """Return the versions that a number may depend on."""
    return {
        "equilibrate": equilibrate.__version__,
        "torch": str(torch.__version__),
        "python": platform.python_version(),
    }


def device_name(device: torch.device | str) -> str:
    """Return a device as a record names it, an accelerator with its maker's name.

    Example:
        >>> device_name("cpu")
        'cpu'
    """
    device = torch.device(device)
    if device.type != "cuda":
        return str(device)
    return f"{device} ({torch.cuda.get_device_name(device)})"


@cache
def commit() -> str | None:
    """Return the commit of the source tree: of its repository, else as $EQUILIBRATE_COMMIT says.

    None for an installed package. A tree with changes that are not committed says so.
    """
    told = os.environ.get("EQUILIBRATE_COMMIT")
    if told:
        return told
    here = Path(equilibrate.__file__).parent
    command = ["git", "-C", str(here), "describe", "--always", "--abbrev=12", "--dirty"]
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError):  # no git, or no repository
        return None
    return run.stdout.strip()


def command() -> str:
    """Return the command that runs, as a person would type it."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    module = spec.name.removesuffix(".__main__") if spec else ""
    program = f"python -m {module}" if module else Path(sys.argv[0]).name
    return shlex.join([*program.split(), *sys.argv[1:]])


def place(device: torch.device | str = "cpu") -> dict[str, Any]:
    """Return where and by what this process computes."""
    return {
        "versions": versions(),
        "commit": commit(),
        "device": device_name(device),
        "machine": f"{platform.system()} {platform.machine()}",
        "threads": torch.get_num_threads(),
    }


def provenance(
    seed: object,
    seconds: float,
    *,
    device: torch.device | str = "cpu",
    where: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Return where, when, by what and in how many seconds a record was computed.

    Args:
        seed: of what was computed.
        seconds: that it took.
        device: of this process.
        where: the `place` of another process that computed it; None: it was this one.
    """
    return {
        **(where or place(device)),
        "seed": seed,
        "command": command(),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 4),
    }
