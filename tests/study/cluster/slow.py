"""A small study that can be caught in the act: it waits there, and notes where steps were taken.

Run as a program with a cluster's address and a folder, it is the process that owns the study.
"""

import os
import sys
import time
from pathlib import Path

from equilibrate.study.cluster import connected
from tests.study import small

STEPS, HOLD = "steps.txt", "hold"
HELD = 5  # updates after which a group waits for as long as the file HOLD is there


def slow(folder):
    """Make a trainer class that notes node, trials, update and process before each step."""
    log, hold = Path(folder) / STEPS, Path(folder) / HOLD

    class Slow(small.SmallTrainer):
        def advance(self, iterations):
            import ray

            node = ray.get_runtime_context().get_node_id()
            keys = "-".join(trial.key for trial in self.trials)
            for _ in range(iterations):
                with log.open("a") as file:
                    file.write(f"{node} {keys} {self.updates} {os.getpid()}\n")
                while self.updates >= HELD and hold.exists():
                    time.sleep(0.02)
                super().advance(1)

    return Slow


def steps(folder):
    """The steps taken so far: node, trials, update, process."""
    path = Path(folder) / STEPS
    lines = path.read_text().splitlines() if path.exists() else []
    return [tuple(line.split()) for line in lines]


def held(folder):
    """The step at which a group waits, once its checkpoint is on the disk; else None."""
    waiting = [step for step in steps(folder) if int(step[2]) == HELD]
    return waiting[0] if waiting and small.checkpoints(folder) else None


def prepared(folder):
    """A folder whose study will wait."""
    folder.mkdir()
    (folder / HOLD).touch()
    return folder


def run(folder, crew, **options):
    return small.run(folder, crew=crew, make_trainer=slow(folder), **options)


if __name__ == "__main__":
    with connected(sys.argv[1]) as crew:
        run(Path(sys.argv[2]), crew)
