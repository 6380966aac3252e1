"""What one measurement of the monitor costs, in training iterations: MNIST auto-encoder, batch 200.

    python -m benchmarks.monitor_cost --seconds 120

Iterations, a measurement, and one with four layers' own spectra, four others each time, are timed
in turn in one run; then how many iterations apart measurements must be for a share of two
hundredths. Last a run of its own with the monitor's budget, which sees to that by itself, and the
share that it took.
"""

import argparse
import time
from collections.abc import Callable

import torch

from benchmarks.iteration import Trainer
from benchmarks.timing import interleaved
from equilibrate import ESGD
from equilibrate.monitor import Monitor
from equilibrate.study.autoencoder import cross_entropy

ITERATIONS = 20
LAYERS = 4


def share_of_a_run(trainer: Trainer, seconds: float) -> tuple[float, int]:
    """Return the monitor's share of the time of a run, its first measurement left out."""
    records: list[dict[str, float]] = []
    monitor = Monitor(trainer.model, trainer.optimizer, records.append, every=1)
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        monitor(cross_entropy(trainer.model(trainer.batch), trainer.batch))
        trainer.iterate()
    spent = sum(record["seconds"] for record in records[1:])
    return spent / (time.perf_counter() - start), len(records)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="of the last run")
    seconds = parser.parse_args().seconds
    trainer = Trainer(lambda p: ESGD(p, lr=1e-6))

    def measuring(layers: int) -> Callable[[], object]:
        monitor = Monitor(trainer.model, trainer.optimizer, lambda record: None, every=1,
                          budget=None, layer_spectra=layers)  # fmt: skip
        return lambda: monitor(cross_entropy(trainer.model(trainer.batch), trainer.batch))

    def train() -> None:
        for _ in range(ITERATIONS):
            trainer.iterate()

    contestants: dict[str, Callable[[], object]] = {
        "train": train,
        "measure": measuring(0),
        "layers": measuring(LAYERS),
    }
    times = interleaved(contestants, rounds=7)
    cost, more = (times[name] / times["train"] * ITERATIONS for name in ("measure", "layers"))
    print(f"torch {torch.__version__}, {torch.get_num_threads()} thread(s)")
    print(f"one measurement: {cost:.0f} iterations; 2% at one in {cost / 0.02:.0f}")
    print(f"with {LAYERS} layers' own spectra: {more:.0f}, each {(more - cost) / LAYERS:.0f} more")
    share, count = share_of_a_run(trainer, seconds)
    print(f"a run of {seconds:.0f} s with budget 0.02: {count} measurements, {share:.2%} after the")
    print("first of them")


if __name__ == "__main__":
    main()
