"""examples.torchrun_ddp, in which rank 1 is killed by signal 9 in step 25 of its first attempt."""

import os
import signal
import sys
from pathlib import Path

from equilibrate import ESGD
from examples.torchrun_ddp import main

_step = ESGD.step
_steps = []


def _step_or_die(self, closure=None):
    _steps.append(1)
    first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    if first and os.environ["RANK"] == "1" and len(_steps) == 25:
        Path(sys.argv[1], "dies").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return _step(self, closure)


if __name__ == "__main__":
    ESGD.step = _step_or_die
    main(Path(sys.argv[1]))
    Path(sys.argv[1], f"steps-{os.environ['RANK']}").write_text(str(len(_steps)))
