"""What ESGD costs against torch's SGD and RMSprop on the CPU: the MNIST auto-encoder, batch 200.

    python -m benchmarks.iteration

Prints ratios measured side by side in one interleaved run, as a Markdown table.
"""

import argparse
import platform
from collections.abc import Callable

import torch

from benchmarks.timing import interleaved
from equilibrate import ESGD, LossHessian, draw
from equilibrate.study.autoencoder import MNIST_SIZES, autoencoder, cross_entropy

BLOCK = 20  # iterations: one probe in each block of ESGD's


class Trainer:
    """One network, one optimizer, one batch of the right size."""

    def __init__(self, make: Callable[..., torch.optim.Optimizer], joined: bool = True) -> None:
        self.joined = joined  # one gradient for the probe and the step
        self.model = autoencoder(MNIST_SIZES, seed=0)
        self.batch = torch.rand(200, 784, generator=torch.Generator().manual_seed(0))
        self.optimizer = make(self.model.parameters())
        self.probes = isinstance(self.optimizer, ESGD)
        self.weights = list(self.model.parameters())
        self.vectors = draw("rademacher", self.weights)
        self.iterate()

    def gradient(self) -> None:
        self.optimizer.zero_grad()
        cross_entropy(self.model(self.batch), self.batch).backward()

    def iterate(self) -> None:
        loss = cross_entropy(self.model(self.batch), self.batch)
        if self.probes and self.joined:
            self.optimizer.probe(loss, backward=True)
        else:
            if self.probes:
                self.optimizer.probe(loss)
            loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()

    def block(self) -> None:
        for _ in range(BLOCK):
            self.iterate()

    def forward_and_probe(self) -> None:
        self.optimizer.param_groups[0]["steps_since_probe"] = BLOCK
        self.optimizer.probe(cross_entropy(self.model(self.batch), self.batch))
        self.optimizer._fold_pending()

    def forward_probe_and_backward(self) -> None:
        self.optimizer.param_groups[0]["steps_since_probe"] = BLOCK
        self.optimizer.probe(cross_entropy(self.model(self.batch), self.batch), backward=True)
        self.optimizer._fold_pending()
        self.optimizer.zero_grad()

    def forward_and_product(self) -> None:
        loss = cross_entropy(self.model(self.batch), self.batch)
        LossHessian(loss, self.weights)(self.vectors)

    def forward(self) -> None:
        cross_entropy(self.model(self.batch), self.batch)

    def state_bytes(self) -> float:
        tensors = [t for s in self.optimizer.state.values() for t in s.values()]
        size = sum(t.nbytes for t in tensors if isinstance(t, torch.Tensor))
        return size / sum(p.numel() for p in self.model.parameters())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    esgd = Trainer(lambda p: ESGD(p, lr=1e-6))
    apart = Trainer(lambda p: ESGD(p, lr=1e-6), joined=False)
    fused = Trainer(lambda p: ESGD(p, lr=1e-6, fused=True))
    sgd = Trainer(lambda p: torch.optim.SGD(p, lr=1e-6))
    rmsprop = Trainer(lambda p: torch.optim.RMSprop(p, lr=1e-9))
    trainers = {"ESGD": esgd, "SGD": sgd, "RMSprop": rmsprop, "apart": apart, "fused": fused}
    blocks = interleaved({name: t.block for name, t in trainers.items()}, rounds)
    for trainer in trainers.values():
        trainer.gradient()
    for trainer in (esgd, apart, fused):  # no probe while timing steps
        trainer.optimizer.param_groups[0]["steps_since_probe"] = -(10**6)
    steps = interleaved({n: t.optimizer.step for n, t in trainers.items()}, 5 * rounds)
    parts = interleaved(
        {
            "probe": esgd.forward_and_probe,
            "joined": esgd.forward_probe_and_backward,
            "product": esgd.forward_and_product,
            "forward": esgd.forward,
            "gradient": esgd.gradient,
        },
        rounds,
    )
    threads = f"{torch.get_num_threads()} threads, torch {torch.__version__}"
    print(f"MNIST auto-encoder, batch 200, {threads}, {platform.machine()}, {rounds} rounds\n")
    print("| what | ratio |\n| --- | --- |")
    print(f"| iteration, ESGD / SGD | {blocks['ESGD'] / blocks['SGD']:.3f} |")
    print(f"| the same, probe and backward apart | {blocks['apart'] / blocks['SGD']:.3f} |")
    print(f"| the same, fused=True | {blocks['fused'] / blocks['SGD']:.3f} |")
    print(f"| iteration, ESGD / RMSprop | {blocks['ESGD'] / blocks['RMSprop']:.3f} |")
    print(f"| update alone, ESGD / RMSprop | {steps['ESGD'] / steps['RMSprop']:.3f} |")
    print(f"| update alone, ESGD fused=True / RMSprop | {steps['fused'] / steps['RMSprop']:.3f} |")
    print(f"| update alone, ESGD / SGD | {steps['ESGD'] / steps['SGD']:.3f} |")
    cost = (parts["probe"] - parts["forward"]) / parts["gradient"]
    product = (parts["product"] - parts["forward"]) / parts["gradient"]
    print(f"| one probe, drawn, multiplied and folded, in gradients | {cost:.2f} |")
    joined = (parts["joined"] - parts["gradient"]) / parts["gradient"]
    print(f"| the same with probe(loss, backward=True) | {joined:.2f} |")
    print(f"| of these the double backward | {product:.2f} |")
    for name, trainer in list(trainers.items())[:3]:
        print(f"| state of {name}, bytes per parameter | {trainer.state_bytes():.2f} |")


if __name__ == "__main__":
    main()
