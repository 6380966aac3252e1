"""MNIST: what is read, where it is looked for, and what is refused."""

import gzip
import hashlib
import os
import struct
from pathlib import Path

import pytest
import torch

from equilibrate.study import mnist
from equilibrate.study.download import PublishedFile
from equilibrate.study.mnist import mnist_folder, mnist_images

NAME = "train-images-idx3-ubyte.gz"
PIXELS = bytes(range(256)) + bytes(2 * 784 - 256)


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a training file of two images whose fingerprint is the accepted one."""
    content = gzip.compress(struct.pack(">4I", 2051, 2, 28, 28) + PIXELS)
    (tmp_path / NAME).write_bytes(content)
    sha256 = hashlib.sha256(content).hexdigest()
    file = PublishedFile(NAME, len(content), sha256, mnist._MIRRORS)
    monkeypatch.setitem(mnist._FILES, "train", file)
    return tmp_path


def test_bytes_become_rows_in_the_unit_interval(fake: Path) -> None:
    images = mnist_images(fake)
    assert images.shape == (2, 784)
    assert images.dtype == torch.float32
    assert images[0, :3].tolist() == pytest.approx([0, 1 / 255, 2 / 255])
    assert images.max() == 1


def test_a_tampered_file_is_refused_by_name(fake: Path) -> None:
    content = bytearray((fake / NAME).read_bytes())
    content[-1] ^= 1
    (fake / NAME).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{NAME} is damaged.* Delete it and get it again"):
        mnist_images(fake)


def test_a_truncated_file_is_refused_by_name(fake: Path) -> None:
    content = (fake / NAME).read_bytes()
    (fake / NAME).write_bytes(content[:-9])
    with pytest.raises(ValueError, match=rf"{NAME} is damaged.* {len(content) - 9} bytes"):
        mnist_images(fake)


def test_a_missing_folder_is_refused_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=rf"nowhere.{NAME} does not exist. Get {NAME} from"):
        mnist_images(tmp_path / "nowhere")


def test_an_unknown_split_is_refused(fake: Path) -> None:
    with pytest.raises(ValueError, match="got 'valid'"):
        mnist_images(fake, split="valid")  # type: ignore[arg-type]


def test_the_argument_comes_before_the_variable_before_the_cache(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EQUILIBRATE_DATA", "/variable")
    assert mnist_folder("/argument") == Path("/argument")
    assert mnist_folder() == Path("/variable")
    monkeypatch.delenv("EQUILIBRATE_DATA")
    assert mnist_folder() == Path.home() / ".cache" / "equilibrate" / "mnist"


def test_the_mirrors_are_addresses_of_folders_reached_safely() -> None:
    for file in mnist._FILES.values():
        assert len(file.mirrors) >= 2
        assert all(url.startswith("https://") and url.endswith("/") for url in file.mirrors)


def test_the_published_files_are_accepted() -> None:
    here = Path(__file__).parents[2].parent / "shared" / "data" / "mnist"
    folder = Path(os.environ.get("EQUILIBRATE_DATA") or here)
    files = mnist._FILES.values()
    if not all((folder / file.name).is_file() for file in files):
        pytest.skip(f"no MNIST files in {folder}: set EQUILIBRATE_DATA to the folder that has them")
    assert all((folder / file.name).stat().st_size == file.size for file in files)
    train, test = mnist_images(folder), mnist_images(folder, split="test")
    assert (train.shape, test.shape) == ((60_000, 784), (10_000, 784))
    # The landmark of FINDINGS: squared error of predicting the mean image.
    assert (train - train.mean(0)).square().sum(1).mean().item() == pytest.approx(52.7, abs=0.05)
