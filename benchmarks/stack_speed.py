"""How fast a stack of trials trains: microseconds per trial-iteration, on the MNIST network.

    python -m benchmarks.stack_speed --data FOLDER [--together 1 2 4 8 16 32 64] [--profile]

Every line is measured with the trainer of `equilibrate compare` itself, the methods in turn, the
median of several rounds. On a GPU the updates are captured graphs with compiled updates.
"""

import argparse
import statistics
import time
from pathlib import Path

import torch

from equilibrate.study.methods import METHODS
from equilibrate.study.problems import BUILT_IN
from equilibrate.study.stack import Stack
from equilibrate.study.trial import Trial

RATES = {"sgd": 0.03, "rmsprop": 3e-4, "esgd": 0.02, "jacobi": 3e-4, "adam": 3e-4, "nag": 0.003}
WARM, TIMED, ROUNDS = 65, 100, 5


def stack(problem, method, together, precision, device):
    """Return a stack of equal trials that has made its first updates.

    Of 2,500 epochs: the probing passes of such runs are compiled.
    """
    settings = METHODS[method].settings(1)[0] | {"lr": RATES[method]}
    trial = Trial(problem.name, "-", method, settings, 0, problem.batch_size, 2500, precision)
    made = Stack(problem, METHODS[method], [trial] * together, device)
    made.advance(WARM)
    return made


def timed(trainer) -> float:
    """Return microseconds per trial-iteration over a number of updates that holds five probes."""
    _wait(trainer.device)
    started = time.perf_counter()
    trainer.advance(TIMED)
    _wait(trainer.device)
    return (time.perf_counter() - started) / TIMED / len(trainer.trials) * 1e6


def _wait(device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def measure(problem, methods, together, precision, device) -> dict[str, float]:
    """Return the median of interleaved rounds for each method."""
    trainers = {method: stack(problem, method, together, precision, device) for method in methods}
    rounds = [{m: timed(t) for m, t in trainers.items()} for _ in range(ROUNDS)]
    return {m: statistics.median(r[m] for r in rounds) for m in methods}


def profile(problem, method, together, precision, device) -> None:
    """Print which kernels one plain and one probing update run, and for how long."""
    trainer = stack(problem, method, together, precision, device)
    for probing in (False, True) if trainer.optimizer.probes_at(0) else (False,):
        _wait(device)
        with torch.profiler.profile() as record:
            for _ in range(5):
                trainer._update_captured((20,) if probing else (None,))
            _wait(device)
        print(f"{method}, {'probing' if probing else 'plain'}, five updates:")
        print(record.key_averages().table(sort_by="cuda_time_total", row_limit=22,
                                          max_name_column_width=70))  # fmt: skip


def main() -> None:
    """Print a table, one line for each number of trials at once."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--problem", default="mnist", choices=list(BUILT_IN))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--methods", nargs="+", default=["sgd", "rmsprop", "esgd"])
    parser.add_argument("--together", nargs="+", type=int, default=[1, 2, 4, 8, 16, 32, 64])
    parser.add_argument("--precision", nargs="+", default=["tf32"])
    parser.add_argument("--profile", action="store_true")
    given = parser.parse_args()
    device, problem = torch.device(given.device), BUILT_IN[given.problem](given.data)
    name = torch.cuda.get_device_name() if device.type == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}, {problem.name}, microseconds per trial-iteration")
    print("| precision | together | " + " | ".join(given.methods) + " |", flush=True)
    for precision in given.precision:
        for together in given.together:
            found = measure(problem, given.methods, together, precision, device)
            cells = " | ".join(f"{found[m]:.1f}" for m in given.methods)
            print(f"| {precision} | {together} | {cells} |", flush=True)
    if given.profile:
        for method in given.methods:
            profile(problem, method, given.together[-1], given.precision[0], device)


if __name__ == "__main__":
    main()
