"""MNIST images, read from the original idx files and checked against their known fingerprints.

A benchmark on a damaged or different file is worse than none, so nothing but the well-known bytes
is accepted. Nothing is downloaded here.
"""

import gzip
import hashlib
import os
import struct
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

DATA_VARIABLE = "EQUILIBRATE_DATA"
"""Environment variable that names the folder of the MNIST files."""

_FILES = {"train": "train-images-idx3-ubyte.gz", "test": "t10k-images-idx3-ubyte.gz"}

# Of the .gz files as LeCun published them.
_SHA256 = {
    "train-images-idx3-ubyte.gz": (
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609"
    ),
    "t10k-images-idx3-ubyte.gz": (
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6"
    ),
}

_SOURCE = "https://ossci-datasets.s3.amazonaws.com/mnist/"


def mnist_images(
    folder: str | os.PathLike[str] | None = None, split: Literal["train", "test"] = "train"
) -> Tensor:
    """The images of a split, one a row: float32 [60000 or 10000, 784], byte / 255, on the CPU.

    Args:
        folder: holds the .gz files; None looks where :func:`mnist_folder` says.
        split: ``"train"`` or ``"test"``.

    Raises:
        FileNotFoundError: the file is not in the folder.
        ValueError: the file is not the published one, or there is no such split.

    Example:
        >>> mnist_images("no/such/folder")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        FileNotFoundError: no/such/folder/train-images-idx3-ubyte.gz does not exist. Get ...
    """
    if split not in _FILES:
        raise ValueError(f'split must be "train" or "test"; got {split!r}')
    path = mnist_folder(folder) / _FILES[split]
    return _idx_images(gzip.decompress(_trusted_bytes(path)))


def mnist_folder(folder: str | os.PathLike[str] | None = None) -> Path:
    """Where the files are looked for: the folder given, else $EQUILIBRATE_DATA, else the cache.

    The cache is ~/.cache/equilibrate/mnist.

    Example:
        >>> mnist_folder("data/mnist").as_posix()
        'data/mnist'
    """
    named = folder or os.environ.get(DATA_VARIABLE) or "~/.cache/equilibrate/mnist"
    return Path(named).expanduser()


def _trusted_bytes(path: Path) -> bytes:
    if not path.is_file():
        raise FileNotFoundError(
            f"{path} does not exist. Get {path.name} from {_SOURCE} and put it there, or name the "
            f"folder that holds it: mnist_images(folder) or the variable {DATA_VARIABLE}"
        )
    content = path.read_bytes()
    found, expected = hashlib.sha256(content).hexdigest(), _SHA256[path.name]
    if found != expected:
        raise ValueError(
            f"{path} is damaged or is another file: its {len(content):,} bytes have SHA-256 "
            f"{found}, the published file has {expected}. Delete it and get it again from {_SOURCE}"
        )
    return content


def _idx_images(content: bytes) -> Tensor:
    # The idx header: four big-endian integers, a magic number and the shape; then the bytes.
    _magic, count, rows, columns = struct.unpack_from(">4I", content)
    # bytearray, for torch warns about memory it may not write to.
    pixels = torch.frombuffer(bytearray(content), dtype=torch.uint8, offset=16)
    return pixels.view(count, rows * columns).to(torch.float32) / 255
