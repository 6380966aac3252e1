"""What momentum does to the curvature along ESGD's path: the edge-of-stability reading, tested.

    python -m benchmarks.edge_of_stability --out FOLDER --picture edge
    python -m benchmarks.edge_of_stability --problem mnist --updates 9000 --device cuda --out FOLDER

Training of networks is known to sharpen until the learning rate is just about stable (Cohen et al.
2021). On a quadratic, along an eigenvector of D^-1 H with eigenvalue lambda, Nesterov's momentum m
(buffer = m buffer + lambda x, x <- x - lr (lambda x + m buffer)) gives

    x' = (1 + m) q x - m q x_before,    q = 1 - lr lambda.

Both roots of r^2 - (1 + m) q r + m q lie inside the unit circle if and only if |m q| < 1 and
|(1 + m) q| < 1 + m q (Jury's conditions). For positive curvature that is q > -1 / (1 + 2 m), or

    lr lambda < (2 + 2 m) / (1 + 2 m):

2 without momentum, 1.36 with m = 0.9. So at the same learning rate Nesterov's momentum asks for a
SMALLER lambda, 0.68 times; at lr (1 - m), the same step in the long run, it allows 6.8 times more.

Three runs from the same start, on the same batches, are measured at some moments: the ends of the
spectrum of D^-1 H, with D as the optimizer has it then, and of H alone, on a fixed set of cases;
the mean of D; the norm of the last step.
"""

import argparse
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from equilibrate.curvature import LossHessian
from equilibrate.monitor.denominators import divisor_of
from equilibrate.monitor.lanczos import lanczos
from equilibrate.optim import ESGD
from equilibrate.paper.drawing import BLACK, BLUE, GREY, VERMILION, axes, save
from equilibrate.paper.records import Data, Store
from equilibrate.paper.robustness import PROBLEMS
from equilibrate.study.alone import Alone
from equilibrate.study.methods import Method
from equilibrate.study.problem import Problem
from equilibrate.study.trial import Trial

METHOD = Method("esgd", ESGD, {})
NAME = "edge-of-stability"
PLAIN, SAME, LONG_RUN = "no momentum", "Nesterov, same lr", "Nesterov, lr (1 - m)"
COLOURS = {PLAIN: BLACK, SAME: VERMILION, LONG_RUN: BLUE}
NEAR = 2.0  # within this factor of the limit counts as being at the edge


def limit(momentum: float) -> float:
    """Return the largest stable lr * lambda under Nesterov's momentum.

    Example:
        >>> limit(0.0), round(limit(0.9), 3)
        (2.0, 1.357)
    """
    return (2 + 2 * momentum) / (1 + 2 * momentum)


def runs(lr: float, momentum: float) -> dict[str, dict[str, Any]]:
    """Return the optimizer's settings of the three runs."""
    # The published runs were made before there was a limit on growth.
    nesterov = {"momentum": momentum, "nesterov": True, "growth_limit": None}
    return {
        PLAIN: {"lr": lr},
        SAME: {"lr": lr, **nesterov},
        LONG_RUN: {"lr": lr * (1 - momentum), **nesterov},
    }


def measure(problem: Problem, asked: Mapping[str, Any], device: torch.device) -> Data:
    """Train the three runs and measure each at equally many moments."""
    updates = [
        round(asked["updates"] * (k + 1) / asked["moments"]) for k in range(asked["moments"])
    ]
    found: Data = {}
    for name, own in runs(asked["lr"], asked["momentum"]).items():
        epochs = -(-asked["updates"] // problem.updates_per_epoch)
        trial = Trial(problem.name, "", "esgd", own, asked["seed"], problem.batch_size, epochs)
        trainer = Alone(problem, METHOD, [trial], device)
        found[name] = []
        for update in updates:
            trainer.advance(update - trainer.updates - 1)
            found[name].append({"updates": update, **_moment(trainer, asked)})
    return found


def _moment(trainer: Alone, asked: Mapping[str, Any]) -> Data:
    """Take one update and measure what it met."""
    own = list(trainer.network.parameters())
    before = [p.detach().clone() for p in own]
    trainer.advance(1)
    step = sum(float((p.detach() - b).square().sum()) for p, b in zip(own, before, strict=True))
    (group,) = trainer.optimizer.param_groups
    divisors = [divisor_of(trainer.optimizer, p, group) for p in own]
    assert all(divisors)
    inputs, targets = (tensor[: asked["cases"]] for tensor in trainer.data)
    hessian = LossHessian(trainer.problem.loss(trainer.network(inputs), targets), own)
    total = sum(float(d.diagonal.sum()) for d in divisors if d)
    ends = {}
    for name, diagonal in (("scaled", [d.divisor for d in divisors if d]), ("sharpness", None)):
        nodes = lanczos(hessian, own, steps=asked["lanczos_steps"], diagonal=diagonal).nodes
        ends[name] = [float(nodes.min()), float(nodes.max())]
    mean = total / sum(p.numel() for p in own)
    return {**ends, "diagonal": mean, "step": step**0.5, "error": trainer.errors()[0]}


def late(moments: Sequence[Data], name: str) -> float:
    """Return the median over the second half of the moments; of a spectrum, of its upper end."""
    values = [m[name][1] if isinstance(m[name], list) else m[name] for m in moments]
    return statistics.median(values[len(values) // 2 :])


def table(data: Data, lr: float, momentum: float) -> list[str]:
    """Return the numbers of the second half of the runs."""
    lines = [
        "| run | lr x largest of D^-1 H | limit | sharpness | mean of D | step | error |",
        "| --- " * 7 + "|",
    ]
    for name, own in runs(lr, momentum).items():
        cells = [
            late(data[name], each) for each in ("scaled", "sharpness", "diagonal", "step", "error")
        ]
        edge = limit(own.get("momentum", 0.0))
        shown = [
            f"{own['lr'] * cells[0]:.3g}",
            f"{edge:.3g}",
            *(f"{cell:.3g}" for cell in cells[1:]),
        ]
        lines.append(f"| {name} | {' | '.join(shown)} |")
    return lines


def judgement(data: Data, lr: float, momentum: float) -> str:
    """Say in one sentence which runs sit at their edges, and by what factors curvature changed."""
    own = runs(lr, momentum)
    shares = {
        name: each["lr"] * late(data[name], "scaled") / limit(each.get("momentum", 0.0))
        for name, each in own.items()
    }
    told = "; ".join(f"{name} {_place(share)}, {share:.2g} of it" for name, share in shares.items())
    predicted = {SAME: limit(momentum) / 2, LONG_RUN: limit(momentum) / 2 / (1 - momentum)}
    grown = "; ".join(
        f"{name}: predicted {factor:.2g}, that eigenvalue {_ratio(data, name, 'scaled'):.2g}, "
        f"H's {_ratio(data, name, 'sharpness'):.2g}, D {_ratio(data, name, 'diagonal'):.2g}"
        for name, factor in predicted.items()
    )
    return (
        f"Over the second half of the runs lr times the largest eigenvalue of D^-1 H, against the "
        f"limit of a quadratic (at it: within a factor of {NEAR:g}): {told}. As multiples of "
        f"the run without momentum: {grown}."
    )


def _place(share: float) -> str:
    return (
        "is below the limit" if share < 1 / NEAR else "is above it" if share > NEAR else "is at it"
    )


def _ratio(data: Data, name: str, what: str) -> float:
    return late(data[name], what) / late(data[PLAIN], what)


def draw(data: Data, lr: float, momentum: float) -> Any:
    """Draw the three quantities along the runs."""
    picture, (edge, diagonal, step) = axes(1, 3, (12.5, 3.8))
    for name, own in runs(lr, momentum).items():
        where, colour = [m["updates"] for m in data[name]], COLOURS[name]
        share = own["lr"] / limit(own.get("momentum", 0.0))
        edge.plot(where, [share * m["scaled"][1] for m in data[name]], color=colour, label=name)
        diagonal.plot(where, [m["diagonal"] for m in data[name]], color=colour)
        step.plot(where, [m["step"] for m in data[name]], color=colour)
    edge.axhline(1.0, color=GREY, lw=0.8)
    edge.set_title("lr x largest eigenvalue of D^-1 H, over its limit")
    diagonal.set_title("mean of D")
    step.set_title("norm of a step")
    for panel in (edge, diagonal, step):
        panel.set_yscale("log")
        panel.set_xlabel("updates")
    edge.legend(fontsize=8)
    return picture


def main() -> None:
    """Measure what is not recorded; print the table and the judgement, draw if asked."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problem", default="curves-like-small", choices=sorted(PROBLEMS))
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, required=True, help="folder of the records")
    parser.add_argument("--picture", type=Path, help="where to draw, without an ending")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--updates", type=int, default=1000)
    parser.add_argument("--moments", type=int, default=20)
    parser.add_argument("--cases", type=int, default=500)
    given = parser.parse_args()
    names = ("problem", "lr", "momentum", "updates", "moments", "cases")
    asked = {name: getattr(given, name) for name in names}
    asked |= {"lanczos_steps": 16, "seed": 0}
    store = Store(given.out, device=given.device)
    problem = PROBLEMS[given.problem](given.data)
    record, _ = store.get(NAME, asked, lambda: measure(problem, asked, torch.device(given.device)))
    print("\n".join(table(record["data"], given.lr, given.momentum)))
    print("\n" + judgement(record["data"], given.lr, given.momentum))
    if given.picture:
        save(draw(record["data"], given.lr, given.momentum), given.picture)


if __name__ == "__main__":
    main()
