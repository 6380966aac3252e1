"""What made a record: versions, machine, threads, seed, command, seconds."""

import platform
import sys
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


def provenance(seed: object, seconds: float) -> dict[str, Any]:
    """Return where, by what and in how many seconds a record was computed."""
    return {
        "versions": versions(),
        "device": "cpu",
        "machine": f"{platform.system()} {platform.machine()}",
        "threads": torch.get_num_threads(),
        "seed": seed,
        "command": " ".join(sys.argv),
        "seconds": round(seconds, 4),
    }
