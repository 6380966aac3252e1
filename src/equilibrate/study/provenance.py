"""What made a record: versions, machine, device, threads, seed, command, time, seconds."""

import platform
import sys
from datetime import UTC, datetime
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


def provenance(
    seed: object, seconds: float, *, device: torch.device | str = "cpu"
) -> dict[str, Any]:
    """Return where, when, by what and in how many seconds a record was computed."""
    return {
        "versions": versions(),
        "device": device_name(device),
        "machine": f"{platform.system()} {platform.machine()}",
        "threads": torch.get_num_threads(),
        "seed": seed,
        "command": " ".join(sys.argv),
        "time": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 4),
    }
