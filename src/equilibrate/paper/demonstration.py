"""A small demonstration: four optimizers on a deep auto-encoder, and what ESGD saw of it.

One seed and one setting a method, the defaults where they are ours: a first look, not a result. The
figures of the paper come from searches over settings.
"""

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Optimizer, RMSprop

from equilibrate import ESGD, JacobiSGD
from equilibrate.study.autoencoder import CURVES_SIZES, autoencoder, cross_entropy, squared_error
from equilibrate.study.curves import curves_like_images

Record = dict[str, Any]

METHODS: dict[str, Callable[..., Optimizer]] = {
    "SGD": lambda p: SGD(p, lr=0.05),
    "RMSprop": lambda p: RMSprop(p, lr=5e-4, alpha=0.95),
    "Jacobi SGD": lambda p: JacobiSGD(p),
    "ESGD": lambda p: ESGD(p),
}
# Okabe & Ito's palette, told apart by every kind of colour vision.
COLOURS = {"SGD": "#999999", "RMSprop": "#E69F00", "Jacobi SGD": "#56B4E9", "ESGD": "#D55E00"}


@dataclass(frozen=True)
class Settings:
    """What the demonstration depends on; a record belongs to one value of it."""

    images: int = 20_000
    epochs: int = 25
    batch: int = 200
    seed: int = 0
    sizes: tuple[int, ...] = CURVES_SIZES

    def key(self, method: str) -> str:
        """Return the name of the record of one method under these settings."""
        text = json.dumps([method, asdict(self)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def compute(settings: Settings, out: Path) -> dict[str, Record]:
    """Train every method that has no record yet; a record is written whole or not at all."""
    (out / "records").mkdir(parents=True, exist_ok=True)
    images = curves_like_images(settings.images, seed=settings.seed)
    records = {}
    for number, method in enumerate(METHODS, start=1):
        path = out / "records" / f"{settings.key(method)}.json"
        if not path.exists():
            record = _train(method, settings, images, f"{method} ({number}/{len(METHODS)})")
            partial = path.with_suffix(".partial")
            partial.write_text(json.dumps(record))
            os.replace(partial, path)
        records[method] = json.loads(path.read_text())
    return records


def _train(method: str, settings: Settings, images: Tensor, label: str) -> Record:
    """Train one method; return its error after every epoch, and the diagonal's quantiles."""
    model = autoencoder(settings.sizes, seed=settings.seed)
    optimizer = METHODS[method](model.parameters())
    errors, started = [_error(model, images)], time.perf_counter()
    for epoch in range(settings.epochs):
        for batch in _batches(images, settings.batch, seed=epoch):
            loss = cross_entropy(model(batch), batch)
            if isinstance(optimizer, ESGD | JacobiSGD):
                optimizer.probe(loss)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()
        errors.append(_error(model, images))
        _show_progress(label, epoch + 1, settings.epochs, started, errors[-1])
    seen = optimizer.diagonal() if isinstance(optimizer, ESGD | JacobiSGD) else []
    weights = [d.flatten() for d in seen if d.dim() > 1]
    levels = torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95])
    quantiles = [torch.quantile(_sample(w), levels).tolist() for w in weights]
    return {"method": method, "settings": asdict(settings), "errors": errors, "layers": quantiles}


def _batches(images: Tensor, size: int, seed: int) -> Iterator[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(images), generator=generator)
    yield from (images[chosen] for chosen in torch.split(order, size))


def _error(model: torch.nn.Module, images: Tensor) -> float:
    """Return the squared error on the first images of the training set."""
    with torch.no_grad():
        return float(squared_error(model(images[:2000]), images[:2000]))


def _sample(values: Tensor, most: int = 1_000_000) -> Tensor:
    """Return evenly spaced elements, as many as `torch.quantile` takes."""
    return values[:: -(-values.numel() // most)]


def _show_progress(label: str, done: int, total: int, started: float, error: float) -> None:
    left = (time.perf_counter() - started) / done * (total - done)
    end = "\n" if done == total else ""
    text = f"\r{label:20s} epoch {done}/{total}  error {error:7.3f}  {left:4.0f} s left "
    print(text, end=end, file=sys.stderr, flush=True)


def draw(settings: Settings, records: dict[str, Record], out: Path) -> list[Path]:
    """Draw learning curves beside the diagonal that ESGD measured, from records alone."""
    import matplotlib.pyplot as plt

    plt.rcParams.update({"font.size": 11, "axes.spines.top": False, "axes.spines.right": False})
    figure, (curves, layers) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    for method, record in records.items():
        errors = record["errors"][1:]
        width = 2.4 if method == "ESGD" else 1.6
        epochs = range(1, len(errors) + 1)
        curves.plot(epochs, errors, color=COLOURS[method], lw=width, label=method)
    curves.set(xlabel="epoch", ylabel="training squared error", xlim=(1, settings.epochs))
    curves.set_ylim(bottom=0)
    curves.legend(frameon=False, loc="lower left")
    curves.set_title("Deep auto-encoder, CURVES-like images", loc="left", fontsize=11)
    for place, (low, lower, middle, upper, high) in enumerate(records["ESGD"]["layers"], start=1):
        layers.plot([place, place], [low, high], color=COLOURS["ESGD"], lw=1.5)
        layers.plot([place, place], [lower, upper], color=COLOURS["ESGD"], lw=6, alpha=0.5)
        layers.plot(place, middle, "o", color=COLOURS["ESGD"], ms=5)
    layers.set(yscale="log", xlabel="layer", ylabel=r"curvature $\sqrt{\mathrm{diag}(H^2)}$")
    layers.set_xticks(range(1, len(records["ESGD"]["layers"]) + 1))
    layers.set_title("What ESGD divides by: median, 50% and 90%", loc="left", fontsize=11)
    paths = [out / f"demonstration.{kind}" for kind in ("png", "svg")]
    for path in paths:
        figure.savefig(path, dpi=150)
    plt.close(figure)
    return paths
