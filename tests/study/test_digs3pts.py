"""The original CURVES file: what is read, what is refused, and the statistics it is known by."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from equilibrate.study import digs3pts
from equilibrate.study.curves import curves_like_images
from equilibrate.study.digs3pts import (
    NAME,
    PUBLISHED,
    Printed,
    digs3pts_images,
    image_statistics,
    unmet_statistics,
)

io = pytest.importorskip("scipy.io")

TRAIN, TEST = 400, 200  # images in the small files


@pytest.fixture(scope="session")
def images() -> Tensor:
    return curves_like_images(20_000, seed=0)


@pytest.fixture
def variables() -> dict[str, Any]:
    """What the file holds, labels included, with fewer images."""
    drawn = curves_like_images(TRAIN + TEST, seed=1).double().numpy()
    labels = drawn[:, :6]
    return {
        "bdata": drawn[:TRAIN],
        "bdatatest": drawn[TRAIN:],
        "tdata": labels[:TRAIN],
        "tdatatest": labels[TRAIN:],
    }


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, variables: dict[str, Any]) -> None:
    """Small files pass for the original: their counts and their statistics are the accepted."""
    monkeypatch.setattr(digs3pts, "_COUNTS", {"train": TRAIN, "test": TEST})
    train = torch.from_numpy(variables["bdata"])
    found = image_statistics(train, train)
    accepted = {name: Printed(round(value, 2), 0.005) for name, value in found.items()}
    monkeypatch.setattr(digs3pts, "PUBLISHED", accepted)


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(variables: dict[str, Any], **options: Any) -> Path:
        io.savemat(tmp_path / NAME, variables, **options)
        return tmp_path

    return write


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("do_compression", [False, True])
@pytest.mark.parametrize("dtype", ["float64", "float32", ">f8"])
@pytest.mark.parametrize(("split", "name"), [("train", "bdata"), ("test", "bdatatest")])
def test_images_are_read_one_a_row(
    variables: dict[str, Any],
    write: Callable[..., Path],
    split: Any,
    name: str,
    dtype: str,
    do_compression: bool,
) -> None:
    content = {key: value.astype(dtype) for key, value in variables.items()}
    read = digs3pts_images(write(content, do_compression=do_compression), split)
    assert read.dtype == torch.float32
    assert read.is_contiguous()
    assert torch.equal(read, torch.from_numpy(variables[name]).float())


def without(name: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    return lambda v: {key: value for key, value in v.items() if key != name}


def changed(name: str, change: Callable[[Any], Any]) -> Callable[..., dict[str, Any]]:
    return lambda v: {**v, name: change(v[name])}


OTHER_FILES = {
    "no training images": (without("bdata"), "not bdata"),
    "no test images": (without("bdatatest"), "not bdatatest"),
    "transposed": (changed("bdata", lambda x: x.T), r"double \(784, 400\)"),
    "fewer": (changed("bdatatest", lambda x: x[:-1]), r"double \(199, 784\)"),
    "bytes": (changed("bdata", lambda x: (255 * x).astype("uint8")), "bdata is uint8"),
    "0 to 255": (changed("bdata", lambda x: 255 * x), r"bdata holds values outside \[0, 1\]"),
    "negative": (changed("bdatatest", lambda x: x - 0.1), r"bdatatest holds values outside"),
    "not a number": (changed("bdata", lambda x: x + float("nan")), "bdata holds values outside"),
    "cells": (changed("bdata", lambda x: x[:2].astype(object)), "bdata is cell"),
    "paler": (changed("bdata", lambda x: 0.99 * x), "its images are others: squared error of"),
    "one image": (changed("bdata", lambda x: 0 * x + x[0]), "its images are others"),
}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("case", OTHER_FILES)
def test_another_file_is_refused_by_name_with_the_reason(
    variables: dict[str, Any], write: Callable[..., Path], case: str
) -> None:
    change, reason = OTHER_FILES[case]
    folder = write(change(variables))
    with pytest.raises(ValueError, match=rf"{NAME} is damaged or is not .*{reason}.* Get it again"):
        digs3pts_images(folder)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("do_compression", [False, True])
@pytest.mark.parametrize("share", [0.0, 0.00001, 0.0001, 0.3, 0.6, 0.9, 0.999])
def test_a_truncated_file_is_refused_by_name(
    variables: dict[str, Any], write: Callable[..., Path], share: float, do_compression: bool
) -> None:
    path = write(variables, do_compression=do_compression) / NAME
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])
    with pytest.raises(ValueError, match=rf"{NAME} is damaged"):
        digs3pts_images(path.parent)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("place", [126, 128, 140, 200])
def test_a_tampered_header_is_refused_by_name(
    variables: dict[str, Any], write: Callable[..., Path], place: int
) -> None:
    path = write(variables) / NAME
    content = bytearray(path.read_bytes())
    content[place : place + 8] = bytes(8 * [0xEE])
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"{NAME} is damaged"):
        digs3pts_images(path.parent)


@pytest.mark.parametrize("content", [b"<html>404</html>", b"\x89HDF\r\n\x1a\n" + bytes(600)])
def test_what_is_no_matlab_5_file_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    (tmp_path / NAME).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{NAME} is damaged or is not"):
        digs3pts_images(tmp_path)


def test_the_real_counts_are_asked_for(
    variables: dict[str, Any], write: Callable[..., Path]
) -> None:
    with pytest.raises(ValueError, match=r"must be double or single \(20000, 784\)"):
        digs3pts_images(write(variables))


def test_a_missing_file_says_where_to_get_it_and_what_needs_none(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"Get digs3pts_1.mat from .*curves-like needs no"):
        digs3pts_images(tmp_path)


def test_an_unknown_split_is_refused() -> None:
    with pytest.raises(ValueError, match="got 'valid'"):
        digs3pts_images(split="valid")  # type: ignore[arg-type]


def test_the_argument_comes_before_the_variable_before_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("EQUILIBRATE_DATA", str(tmp_path / "variable"))
    with pytest.raises(FileNotFoundError, match="argument"):
        digs3pts_images(tmp_path / "argument")
    with pytest.raises(FileNotFoundError, match="variable"):
        digs3pts_images()
    monkeypatch.delenv("EQUILIBRATE_DATA")
    with pytest.raises(FileNotFoundError, match=r"home.\.cache.equilibrate.curves"):
        digs3pts_images()


def test_without_scipy_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / NAME).write_bytes(bytes(128))
    monkeypatch.setitem(sys.modules, "scipy.io", None)
    with pytest.raises(ImportError, match=r"pip install 'equilibrate\[paper\]'"):
        digs3pts_images(tmp_path)


def test_statistics_of_the_generated_images_are_those_of_its_table(images: Tensor) -> None:
    """The table in curves.py, computed there by other code."""
    found = image_statistics(images, images)
    assert list(found.values()) == pytest.approx([16.75, 125.9, 53.2, 5.94], abs=0.05)
    # And so they are not taken for the original.
    assert not any(PUBLISHED[name].agrees(found[name], len(images)) for name in PUBLISHED)


def test_an_unmet_statistic_is_told_with_both_numbers() -> None:
    unmet = unmet_statistics(*curves_like_images(3000).split([2000, 1000]))
    assert "cross-entropy of the mean image 125.8, published 124.4" in unmet


@pytest.mark.parametrize("name", PUBLISHED)
@pytest.mark.parametrize("way", range(4))
def test_a_statistic_is_met_within_its_digits_over_any_of_the_sets(
    name: str, way: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Off 0, for a pixel that only test images ink would make their cross-entropy infinite.
    train, test = curves_like_images(900).clamp(min=0.01).split([600, 300])
    images, reference = list(digs3pts._ways(train, test))[way]
    found = image_statistics(images, reference)[name]
    slack = 0.005 + found / len(images)
    for distance, met in ((0.9, True), (-0.9, True), (1.2, False), (-1.2, False)):
        printed = Printed(found + distance * slack, 0.005)
        assert printed.agrees(found, len(images)) == met
    numbers = {**dict.fromkeys(PUBLISHED, Printed(-1.0, 0.005)), name: Printed(found, 0.005)}
    monkeypatch.setattr(digs3pts, "PUBLISHED", numbers)
    unmet = unmet_statistics(train, test)
    assert len(unmet) == 3
    assert not any(text.startswith(name) for text in unmet)


def test_the_digits_are_those_of_the_source() -> None:
    """Half a unit of the last printed digit; a whole one where the source says 'about'."""
    roundings = [printed.rounding for printed in PUBLISHED.values()]
    assert [printed.value for printed in PUBLISHED.values()] == [16.89, 124.4, 53.8, 5.90]
    assert roundings == [0.005, 0.05, 0.1, 0.005]
