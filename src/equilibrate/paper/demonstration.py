"""A small demonstration: four optimizers on a deep auto-encoder, and what ESGD saw of it.

One seed and one setting a method, the defaults where they are ours: a first look, not a result. The
figures of the paper come from searches over settings.
"""

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.optim import SGD, Optimizer, RMSprop

from equilibrate import ESGD, JacobiSGD
from equilibrate.paper.drawing import GREY, ORANGE, SKY, VERMILION, axes
from equilibrate.paper.figure import Description, Figure, Records, Table
from equilibrate.paper.records import Data, Store
from equilibrate.study.autoencoder import CURVES_SIZES, autoencoder, cross_entropy, squared_error
from equilibrate.study.curves import curves_like_images
from equilibrate.study.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

METHODS: dict[str, Callable[..., Optimizer]] = {
    "SGD": lambda p: SGD(p, lr=0.05),
    "RMSprop": lambda p: RMSprop(p, lr=5e-4, alpha=0.95),
    "Jacobi SGD": lambda p: JacobiSGD(p),
    "ESGD": lambda p: ESGD(p),
}
COLOURS = {"SGD": GREY, "RMSprop": ORANGE, "Jacobi SGD": SKY, "ESGD": VERMILION}


@dataclass(frozen=True)
class Settings:
    """What the demonstration depends on; a record belongs to one value of it."""

    images: int = 20_000
    epochs: int = 25
    batch: int = 200
    seed: int = 0
    sizes: tuple[int, ...] = CURVES_SIZES


def compute(settings: Settings, store: Store, progress: Progress) -> Records:
    """Train every method that has no record yet; one record a method."""
    found: list[Tensor] = []  # the images, made when first needed

    def images() -> Tensor:
        if not found:
            found.append(curves_like_images(settings.images, seed=settings.seed))
        return found[0]

    records = []
    for method in METHODS:

        def run(method: str = method) -> Data:
            return _train(method, settings, images(), progress)

        record, computed = store.get("demonstration", {"method": method, **asdict(settings)}, run)
        if not computed:
            progress.advance(settings.epochs, computed=False)
        records.append(record)
    return records


def _train(method: str, settings: Settings, images: Tensor, progress: Progress) -> Data:
    """Train one method; return its error after every epoch, and the diagonal's quantiles."""
    model = autoencoder(settings.sizes, seed=settings.seed)
    optimizer = METHODS[method](model.parameters())
    errors = [_error(model, images)]
    for epoch in range(settings.epochs):
        for batch in _batches(images, settings.batch, seed=epoch):
            loss = cross_entropy(model(batch), batch)
            if isinstance(optimizer, ESGD | JacobiSGD):
                optimizer.probe(loss)
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            optimizer.zero_grad()
        errors.append(_error(model, images))
        progress.advance()
    seen = optimizer.diagonal() if isinstance(optimizer, ESGD | JacobiSGD) else []
    weights = [d.flatten() for d in seen if d.dim() > 1]
    levels = torch.tensor([0.05, 0.25, 0.5, 0.75, 0.95])
    quantiles = [torch.quantile(_sample(w), levels).tolist() for w in weights]
    return {"errors": errors, "layers": quantiles}


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


def draw(settings: Settings, records: Records) -> "Picture":
    """Draw learning curves beside the diagonal that ESGD measured, from records alone."""
    picture, (curves, layers) = axes(1, 2, (10, 4))
    by_method = {record["settings"]["method"]: record["data"] for record in records}
    for method, data in by_method.items():
        errors = data["errors"][1:]
        width = 2.4 if method == "ESGD" else 1.6
        epochs = range(1, len(errors) + 1)
        curves.plot(epochs, errors, color=COLOURS[method], lw=width, label=method)
    curves.set(xlabel="epoch", ylabel="training squared error", xlim=(1, settings.epochs))
    curves.set_ylim(bottom=0)
    curves.legend(loc="lower left")
    curves.set_title("Deep auto-encoder, CURVES-like images")
    for place, (low, lower, middle, upper, high) in enumerate(by_method["ESGD"]["layers"], start=1):
        layers.plot([place, place], [low, high], color=VERMILION, lw=1.5)
        layers.plot([place, place], [lower, upper], color=VERMILION, lw=6, alpha=0.5)
        layers.plot(place, middle, "o", color=VERMILION, ms=5)
    layers.set(yscale="log", xlabel="layer", ylabel=r"curvature $\sqrt{\mathrm{diag}(H^2)}$")
    layers.set_xticks(range(1, len(by_method["ESGD"]["layers"]) + 1))
    layers.set_title("What ESGD divides by: median, 50% and 90%")
    return picture  # type: ignore[no-any-return]


def describe(settings: Settings, records: Records) -> Description:
    """Return the caption and the last errors."""
    rows = [
        (record["settings"]["method"], f"{record['data']['errors'][-1]:.3f}") for record in records
    ]
    caption = (
        "Four optimizers on a deep auto-encoder, and the curvature that ESGD measured in each "
        "layer. One seed and one setting a method, the defaults where they are ours: a first look, "
        "not a result; no claim rests on it."
    )
    table = Table("Training squared error at the end", ("method", "error"), tuple(rows))
    return Description(caption, tables=(table,))


FIGURE = Figure(
    name="demonstration",
    title="Demonstration: a deep auto-encoder",
    settings=lambda quick: Settings(images=5000, epochs=8) if quick else Settings(),
    units=lambda settings: float(settings.epochs * len(METHODS)),
    compute=compute,
    draw=draw,
    describe=describe,
)
