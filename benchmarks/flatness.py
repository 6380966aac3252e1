"""How flat the network is, and how large D, along runs of NAG and of ESGD with and without a floor.

    python -m benchmarks.flatness --problem mnist --data FOLDER
    python -m benchmarks.flatness --problem curves-like --rates 0.03 0.3

The small auto-encoder of `benchmarks.mean_floor`, the same settings and schedules, stopped after
some thousand updates. Sharpness is the largest eigenvalue of H on 2,000 cases, by Lanczos' method.
"""

import argparse
from pathlib import Path

import torch

from benchmarks.mean_floor import ARMS, trial
from equilibrate.curvature import LossHessian
from equilibrate.monitor.lanczos import lanczos
from equilibrate.study.alone import Alone
from equilibrate.study.problems import BUILT_IN

LOOKED_AT = ("NAG", "ESGD", "ESGD, mean_floor")
CASES, STEPS = 2_000, 20


def sharpness(trainer: Alone) -> float:
    own = list(trainer.network.parameters())
    inputs, targets = (tensor[:CASES] for tensor in trainer.data)
    hessian = LossHessian(trainer.problem.loss(trainer.network(inputs), targets), own)
    return float(lanczos(hessian, own, steps=STEPS).nodes.max())


def ratio(trainer: Alone) -> str:
    """Return the mean of D over what it was at first."""
    group = trainer.optimizer.param_groups[0]
    if "first_mean_scale" not in group:
        return "-"
    return f"{float(group['mean_scale']) / float(group['first_mean_scale']):.2g}"


def main() -> None:
    """Train, measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problem", default="curves-like")
    parser.add_argument("--data", type=Path)
    parser.add_argument("--rates", type=float, nargs="+", default=[0.03, 0.09487])
    parser.add_argument("--moments", type=int, nargs="+", default=[500, 1000, 2000, 4000])
    given = parser.parse_args()
    problem = BUILT_IN[f"{given.problem}-14"](given.data)
    heads = " | ".join(f"{moment:,}" for moment in given.moments)
    print(f"error / sharpness / mean of D over its first\n\n| | lr | {heads} |")
    print("| --- " * (2 + len(given.moments)) + "|")
    for arm in LOOKED_AT:
        for lr in given.rates:
            trainer = Alone(problem, ARMS[arm], [trial(problem, arm, lr, 0)], torch.device("cpu"))
            cells = []
            for moment in given.moments:
                trainer.advance(moment - trainer.updates)
                told = f"{trainer.errors()[0]:.3g} / {sharpness(trainer):.3g} / {ratio(trainer)}"
                cells.append(told)
            print(f"| {arm} | {lr:g} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
