"""torchrun, as a user would call it."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
SETTINGS = {
    "OMP_NUM_THREADS": "1",
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",  # see examples/torchrun_ddp.py
    "ACCELERATE_USE_CPU": "true",  # as `accelerate launch --cpu` sets it
}


def torchrun(ranks: int, module: str, *arguments: object, restarts: int = 0) -> str:
    """Run a module on so many ranks of this machine; return what was printed, fail if it failed."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(ranks), "--max-restarts", str(restarts)]
    command += ["-m", "tests.examples.leaving", module, *map(str, arguments)]
    run = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | SETTINGS,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return run.stdout + run.stderr
