"""What one measurement of the monitor costs, in training iterations: MNIST auto-encoder, batch 200.

    python -m benchmarks.monitor_cost

The two are timed in turn in one run. The last column is how many iterations apart measurements must
be for a share of two hundredths: the monitor's budget sees to that by itself.
"""

import torch

from benchmarks.iteration import Trainer
from benchmarks.timing import interleaved
from equilibrate import ESGD
from equilibrate.monitor import Monitor
from equilibrate.study.autoencoder import cross_entropy

ITERATIONS = 20


def main() -> None:
    trainer = Trainer(lambda p: ESGD(p, lr=1e-6))
    monitor = Monitor(trainer.model, trainer.optimizer, lambda record: None, every=1, budget=None)

    def train() -> None:
        for _ in range(ITERATIONS):
            trainer.iterate()

    def measure() -> None:
        monitor(cross_entropy(trainer.model(trainer.batch), trainer.batch))

    times = interleaved({"train": train, "measure": measure}, rounds=7)
    cost = times["measure"] / times["train"] * ITERATIONS
    print(f"torch {torch.__version__}, {torch.get_num_threads()} thread(s)")
    print(f"one measurement: {cost:.0f} iterations; 2% at one in {cost / 0.02:.0f}")


if __name__ == "__main__":
    main()
