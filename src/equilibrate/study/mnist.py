"""MNIST images, read from the original idx files and checked against their known fingerprints.

A benchmark on a damaged or different file is worse than none, so nothing but the well-known bytes
is accepted. Where no folder is named and the cache lacks the file, it is downloaded.
"""

import gzip
import struct
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from equilibrate.study.download import (
    DATA_VARIABLE,
    Folder,
    PublishedFile,
    cache_folder,
    download,
    named_folder,
)

_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)

# The .gz files as LeCun published them.
_FILES = {
    "train": PublishedFile(
        "train-images-idx3-ubyte.gz",
        9_912_422,
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        _MIRRORS,
    ),
    "test": PublishedFile(
        "t10k-images-idx3-ubyte.gz",
        1_648_877,
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        _MIRRORS,
    ),
}


def mnist_images(folder: Folder = None, split: Literal["train", "test"] = "train") -> Tensor:
    """The images of a split, one a row: float32 [60000 or 10000, 784], byte / 255, on the CPU.

    Args:
        folder: holds the .gz files; None looks where :func:`mnist_folder` says and downloads a
            file that the cache lacks. Nothing is downloaded into a folder that was named.
        split: ``"train"`` or ``"test"``.

    Raises:
        FileNotFoundError: the file is not in the folder, or could not be downloaded.
        ValueError: the file is not the published one, or there is no such split.

    Example:
        >>> mnist_images("no/such/folder")  # doctest: +ELLIPSIS
        Traceback (most recent call last):
            ...
        FileNotFoundError: no/such/folder/train-images-idx3-ubyte.gz does not exist. Get ...
    """
    if split not in _FILES:
        raise ValueError(f'split must be "train" or "test"; got {split!r}')
    file = _FILES[split]
    path = mnist_folder(folder) / file.name
    if not path.is_file():
        if named_folder(folder) is not None:
            raise FileNotFoundError(
                f"{mnist_missing(folder, split)}; where no folder is named, it is downloaded into "
                f"{cache_folder('mnist')}"
            )
        download(file, path.parent)
    return _idx_images(gzip.decompress(_trusted_bytes(file, path)))


def mnist_folder(folder: Folder = None) -> Path:
    """Where the files are looked for: the folder given, else $EQUILIBRATE_DATA, else the cache.

    The cache is ~/.cache/equilibrate/mnist.

    Example:
        >>> mnist_folder("data/mnist").as_posix()
        'data/mnist'
    """
    return named_folder(folder) or cache_folder("mnist")


def mnist_at_hand(folder: Folder = None) -> bool:
    """Tell whether the training images are where they are looked for; nothing is downloaded.

    Example:
        >>> mnist_at_hand("no/such/folder")
        False
    """
    return (mnist_folder(folder) / _FILES["train"].name).is_file()


def mnist_missing(folder: Folder = None, split: Literal["train", "test"] = "train") -> str:
    """Say which file is missing where it is looked for, and where to get it.

    Example:
        >>> mnist_missing("data").split(". ")[0]
        'data/train-images-idx3-ubyte.gz does not exist'
    """
    file = _FILES[split]
    return (
        f"{mnist_folder(folder) / file.name} does not exist. Get {file.name} from "
        f"{file.mirrors[0]} and put it there, or name the folder that holds it (--data FOLDER or "
        f"the environment variable {DATA_VARIABLE})"
    )


def _trusted_bytes(file: PublishedFile, path: Path) -> bytes:
    content = path.read_bytes()
    if refusal := file.refusal(content):
        raise ValueError(
            f"{path} is damaged or is another file: {refusal}. Delete it and get it again from "
            f"{file.mirrors[0]}"
        )
    return content


def _idx_images(content: bytes) -> Tensor:
    # The idx header: four big-endian integers, a magic number and the shape; then the bytes.
    _magic, count, rows, columns = struct.unpack_from(">4I", content)
    # bytearray, for torch warns about memory it may not write to.
    pixels = torch.frombuffer(bytearray(content), dtype=torch.uint8, offset=16)
    return pixels.view(count, rows * columns).to(torch.float32) / 255
