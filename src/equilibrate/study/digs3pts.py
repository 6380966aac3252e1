"""The original CURVES images, read from digs3pts_1.mat where the user has it.

The file is on its authors' pages only and is never downloaded here. No fingerprint of it is public,
so it is known by its content: the shapes, values in [0, 1], and four statistics printed to three or
four digits. Wrong data do not meet those; a few altered pixels in the right file would, and cannot
be told.
"""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor

from equilibrate.study.download import DATA_VARIABLE, Folder, cache_folder, named_folder

NAME = "digs3pts_1.mat"
_ADDRESS = f"https://www.cs.toronto.edu/~jmartens/{NAME}"
_VARIABLES = {"train": "bdata", "test": "bdatatest"}
_COUNTS = {"train": 20_000, "test": 10_000}
_PIXELS = 784
_COMPONENTS = 18


class Printed(NamedTuple):
    """A number as it was printed, and the rounding that its digits leave open."""

    value: float
    rounding: float

    def agrees(self, found: float, count: int) -> bool:
        """Return whether a statistic of ``count`` images would be printed so.

        The 1 / count is for a variance, which some divide by one less than the count.
        """
        return abs(found - self.value) <= self.rounding + abs(self.value) / count


PUBLISHED = {
    "squared error of the mean image": Printed(16.89, 0.005),
    "cross-entropy of the mean image": Printed(124.4, 0.05),
    "cross-entropy floor": Printed(53.8, 0.1),  # 'about 53.8': a whole unit of the last digit
    "PCA-18 residual": Printed(5.90, 0.005),
}
"""Four statistics of the original images."""


def digs3pts_images(folder: Folder = None, split: Literal["train", "test"] = "train") -> Tensor:
    """The original CURVES images, one a row: float32 [20000 or 10000, 784], on the CPU.

    Args:
        folder: holds digs3pts_1.mat; None looks in $EQUILIBRATE_DATA, then in
            ~/.cache/equilibrate/curves.
        split: ``"train"`` or ``"test"``.

    Raises:
        FileNotFoundError: the file is not in the folder.
        ImportError: SciPy, which reads the format, is not installed.
        ValueError: the file is damaged or is another one, or there is no such split.

    Example:
        >>> digs3pts_images("no/such/folder")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        FileNotFoundError: no/such/folder/digs3pts_1.mat does not exist. ...
    """
    if split not in _VARIABLES:
        raise ValueError(f'split must be "train" or "test"; got {split!r}')
    path = (named_folder(folder) or cache_folder("curves")) / NAME
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} does not exist. Get {NAME} from {_ADDRESS} and name the folder that holds it "
            f"(--data FOLDER or the environment variable {DATA_VARIABLE}); the problem curves-like "
            f"needs no file"
        )
    _check_whole(path)
    splits = {name: _read(path, name) for name in _VARIABLES}
    if unmet := unmet_statistics(splits["train"], splits["test"]):
        raise _refused(path, f"its images are others: {'; '.join(unmet)}")
    return splits[split]


def unmet_statistics(train: Tensor, test: Tensor) -> list[str]:
    """Return the published statistics that the images do not meet, with what was found.

    The sources do not say over which images a number was taken, and between the splits the numbers
    differ by more than their last digit; so a statistic is met where the training images, the test
    images, all of them, or the test images predicted from the training images meet it.
    """
    unmet = {name: (printed, "") for name, printed in PUBLISHED.items()}
    for images, reference in _ways(train, test):
        found = image_statistics(images, reference)
        unmet = {
            name: (printed, text or f"{name} {found[name]:.4g}, published {printed.value:.4g}")
            for name, (printed, text) in unmet.items()
            if not printed.agrees(found[name], len(images))
        }
        if not unmet:
            break
    return [text for _, text in unmet.values()]  # as found on the training images


def image_statistics(images: Tensor, reference: Tensor) -> dict[str, float]:
    """The four statistics of images predicted from the mean and the components of a reference.

    With m the reference's mean and P the projection off its 18 principal components: sum (x - m)^2,
    the cross-entropies of m and of x itself, and sum (P (x - m))^2, each a mean over the images.

    Example:
        >>> images = torch.eye(20)
        >>> found = image_statistics(images, images)
        >>> round(found["squared error of the mean image"], 4), found["cross-entropy floor"]
        (0.95, 0.0)
    """
    wide, base = images.double(), reference.double()
    mean = base.mean(0)
    # eigh sorts upwards: the last columns are the principal components.
    components = torch.linalg.eigh(torch.cov(base.T)).eigenvectors[:, -_COMPONENTS:]
    centred = wide - mean
    squared = centred.square().sum(1).mean()
    kept = (centred @ components).square().sum(1).mean()
    values = (squared, _entropy(wide, mean), _entropy(wide, wide), squared - kept)
    return dict(zip(PUBLISHED, map(float, values), strict=True))


def _ways(train: Tensor, test: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    yield train, train
    yield test, test
    yield test, train
    both = torch.cat([train, test])
    yield both, both


def _entropy(target: Tensor, prediction: Tensor) -> Tensor:
    pixels = torch.xlogy(target, prediction) + torch.xlogy(1 - target, 1 - prediction)
    return pixels.sum(1).mean().neg() + 0.0  # + 0.0: no -0.0


def _read(path: Path, split: str) -> Tensor:
    variable = _VARIABLES[split]
    _check_header(path, split)
    content = _scipy(path, "loadmat", variable_names=[variable])[variable]
    if not ((content >= 0) & (content <= 1)).all():
        raise _refused(path, f"{variable} holds values outside [0, 1]")
    # From column-major float64 of either byte order.
    return torch.from_numpy(content.astype("float32", order="C"))


def _check_whole(path: Path) -> None:
    """Refuse a file that ends early, for SciPy does not miss what is cut off after our variables.

    A MATLAB 5 file is a header of 128 bytes, the last two its byte order, and then variables, each
    behind 8 bytes that hold its type and its length.
    """
    end, place = path.stat().st_size, 128
    with path.open("rb") as file:
        order: Literal["little", "big"] = "little" if file.read(place)[126:] == b"IM" else "big"
        while place + 8 <= end:
            file.seek(place)
            place += 8 + int.from_bytes(file.read(8)[4:], order)
    if place != end:
        raise _refused(path, f"it has {end:,} bytes, its variables need {place:,} or more")


def _check_header(path: Path, split: str) -> None:
    """Refuse by name, shape and type before anything is read into memory."""
    variable, shape = _VARIABLES[split], (_COUNTS[split], _PIXELS)
    found = {name: (tuple(size), kind) for name, size, kind in _scipy(path, "whosmat")}
    if variable not in found:
        raise _refused(path, f"it holds {', '.join(found) or 'nothing'}, not {variable}")
    size, kind = found[variable]
    if size != shape or kind not in ("double", "single"):
        raise _refused(path, f"{variable} is {kind} {size}; it must be double or single {shape}")


def _scipy(path: Path, function: str, **options: Any) -> Any:
    try:
        io = importlib.import_module("scipy.io")
    except ImportError as error:
        raise ImportError(
            f"{path} is a MATLAB file, which SciPy reads: pip install 'equilibrate[paper]'"
        ) from error
    try:
        return getattr(io, function)(str(path), appendmat=False, **options)
    except PermissionError:
        raise
    # A damaged file fails wherever the reader happens to stumble: TypeError, zlib.error, KeyError.
    except Exception as error:
        raise _refused(path, f"it cannot be read as a MATLAB 5 file ({error})") from error


def _refused(path: Path, reason: str) -> ValueError:
    return ValueError(
        f"{path} is damaged or is not the original CURVES file: {reason}. Get it again from "
        f"{_ADDRESS}; to train on other images, hand in a problem of your own (module:name)"
    )
