"""Where a report goes: what cannot be written there is told before minutes of computing."""

import errno
from pathlib import Path
from tempfile import TemporaryDirectory

from equilibrate.study.files import meant, require_folder


def place_of(path: Path) -> Path:
    """Return the file that a report is written to, or raise where it cannot be."""
    place = meant(path)
    require_folder(place.parent)
    if place.is_dir():
        words = "a folder is in the place of the report; name a file in it"
        raise IsADirectoryError(errno.EISDIR, words, str(path))
    return place


def make_room(place: Path) -> None:
    """Make the folder of a report, or raise where nothing can be written in it."""
    place.parent.mkdir(parents=True, exist_ok=True)
    own_folder(place).cleanup()


def own_folder(place: Path) -> "TemporaryDirectory[str]":
    """A folder of its own beside the report: no name in it is anybody else's."""
    return TemporaryDirectory(prefix=".equilibrate-", dir=place.parent)
