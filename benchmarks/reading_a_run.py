"""Three training runs as the monitor sees them: healthy, learning rate too high, a dead layer.

    python -m benchmarks.reading_a_run docs/reading-a-run.png

The picture and the numbers of docs/reading-a-run.md come from here.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from equilibrate import ESGD
from equilibrate.monitor import Monitor
from equilibrate.paper import drawing

STEPS, EVERY = 400, 4
LAYER = "2.weight"
Record = dict[str, Any]


def data() -> tuple[Tensor, Tensor]:
    x = torch.rand(256, 2, generator=torch.Generator().manual_seed(0)) * 2 - 1
    return x, torch.sin(3 * x[:, :1]) * torch.cos(2 * x[:, 1:])


def network() -> nn.Sequential:
    torch.manual_seed(0)
    layers = [nn.Linear(2, 32), nn.Softplus(5), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 1)]
    return nn.Sequential(*layers)


def dead(model: nn.Sequential) -> None:
    """Push the second layer's units so far down that no input wakes most of them."""
    with torch.no_grad():
        model[2].bias[:30] -= 6.0


def train(lr: float, prepare: Callable[[nn.Sequential], None] = lambda model: None) -> list[Record]:
    """Train and return the records; it ends early where the loss is no longer finite."""
    x, y = data()
    model = network()
    prepare(model)
    optimizer = ESGD(model.parameters(), lr=lr)
    records: list[Record] = []
    monitor = Monitor(model, optimizer, records.append, every=EVERY, budget=None)
    for _ in range(STEPS):
        loss = nn.functional.mse_loss(model(x), y)
        if not bool(loss.isfinite()):
            break
        optimizer.probe(loss)
        monitor(loss)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return records


RUNS: dict[str, tuple[str, Callable[[], list[Record]]]] = {
    "healthy: lr 0.05": (drawing.BLUE, lambda: train(0.05)),
    "learning rate too high: lr 0.25": (drawing.VERMILION, lambda: train(0.25)),
    "a dead layer: lr 0.05": (drawing.GREEN, lambda: train(0.05, dead)),
}
PANELS = {
    "loss": "Loss",
    "preconditioned/sharpness_times_lr": "Learning rate × preconditioned sharpness",
    f"layers/{LAYER}/share_flat": f"Share of {LAYER} without curvature now",
}


def draw(runs: dict[str, list[Record]], path: Path) -> None:
    picture, panels = drawing.axes(1, 3, (12.0, 3.6))
    for axis, (key, title) in zip(panels, PANELS.items(), strict=True):
        for name, records in runs.items():
            points = [record["step"] for record in records], [record[key] for record in records]
            axis.plot(*points, color=RUNS[name][0], label=name, linewidth=1.6)
        axis.set(title=title, xlabel="step")
    panels[0].set_yscale("log")
    panels[1].set_yscale("log")
    panels[1].axhline(2.0, color=drawing.BLACK, linestyle=":", linewidth=1)
    panels[1].text(STEPS, 2.1, "limit 2", ha="right", va="bottom")
    panels[2].set_ylim(0, 1.02)
    handles, labels = panels[0].get_legend_handles_labels()
    picture.legend(handles, labels, loc="outside lower center", ncols=3)
    picture.savefig(path, dpi=110)


def main() -> None:
    runs = {name: run() for name, (_, run) in RUNS.items()}
    for name, records in runs.items():
        for record in (records[0], records[2], records[len(records) // 2], records[-1]):
            print(name, record["step"], *(f"{key} {record[key]:.3g}" for key in PANELS))
    draw(runs, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
