"""Data files: where they are looked for, and how a published one is downloaded and checked.

A file is looked for in the folder the user names, else in $EQUILIBRATE_DATA, else in the cache
~/.cache/equilibrate. Downloads go to the cache alone: nothing is ever put into a folder of the
user's. What a mirror sends is checked in memory, before any of it is on disk, and is then moved
into place in one step: whatever stops the program, a file under its name is whole.
"""

import hashlib
import os
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path

from equilibrate.study.progress import Progress

DATA_VARIABLE = "EQUILIBRATE_DATA"
"""Environment variable that names the folder of the data files."""

Folder = str | os.PathLike[str] | None

_OTHER_FOLDER = (
    f"or name the folder that holds it: --data FOLDER or the environment variable {DATA_VARIABLE}"
)

_CHUNK = 1 << 16
_SILENCE = 30.0  # seconds without a byte after which a mirror is given up
_DEADLINE = 600.0  # seconds for the whole file: 10 MB at 17 kB/s


class DownloadError(FileNotFoundError):
    """Raised where a file is not there and could not be got; the text says what to do."""


@dataclass(frozen=True)
class PublishedFile:
    """A file that everyone has the same bytes of; small enough to be held in memory.

    Example:
        >>> empty = PublishedFile("empty", 0, hashlib.sha256(b"").hexdigest(), mirrors=())
        >>> empty.refusal(b"")
        ''
        >>> empty.refusal(b"x")[:37]
        'its 1 bytes have SHA-256 2d711642b726'
    """

    name: str
    size: int
    sha256: str
    mirrors: tuple[str, ...]  # addresses that the name is appended to, tried in order

    def refusal(self, content: bytes) -> str:
        """Return why the bytes are not the file; nothing where they are."""
        found = hashlib.sha256(content).hexdigest()
        if found == self.sha256:
            return ""
        return (
            f"its {len(content):,} bytes have SHA-256 {found}, "
            f"the published file has {self.size:,} bytes and {self.sha256}"
        )


def named_folder(folder: Folder = None) -> Path | None:
    """Return the folder the user names: the one given, else $EQUILIBRATE_DATA, else None.

    Example:
        >>> named_folder("data").as_posix()
        'data'
    """
    named = folder or os.environ.get(DATA_VARIABLE)
    return Path(named).expanduser() if named else None


def cache_folder(kind: str) -> Path:
    """Return the cache folder of one kind of data.

    Example:
        >>> cache_folder("mnist").parts[-3:]
        ('.cache', 'equilibrate', 'mnist')
    """
    return Path.home() / ".cache" / "equilibrate" / kind


def download(file: PublishedFile, folder: Path) -> Path:
    """Download a published file into a folder from the first mirror that sends the right bytes.

    Raises:
        DownloadError: no mirror sent it, or the folder cannot be written to.
    """
    with _explained(file, folder):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass  # a read-only folder is better found out before the transfer
    content = _from_mirrors(file, folder)
    with _explained(file, folder):
        return _store(content, folder / file.name)


def _from_mirrors(file: PublishedFile, folder: Path) -> bytes:
    reasons = []
    for mirror in file.mirrors:
        url = mirror + file.name
        progress = Progress(file.name, file.size)
        _say(f"Downloading {url} ({file.size / 1e6:.1f} MB) into {folder}")
        try:
            return _fetch(url, file, progress)
        except (OSError, HTTPException) as error:
            reasons.append(f"{url}: {_reason(error)}")
            _say(f"{_line_end(progress)}{reasons[-1]}")
    tried = "\n  ".join(reasons)
    raise DownloadError(
        f"{file.name} is not in {folder} and could not be downloaded:\n  {tried}\n"
        f"Where there is a network, get it from one of these addresses (SHA-256 {file.sha256}) and "
        f"put it into {folder}, {_OTHER_FOLDER}"
    )


def _fetch(url: str, file: PublishedFile, progress: Progress) -> bytes:
    content = bytearray()
    deadline = time.monotonic() + _DEADLINE
    with urllib.request.urlopen(url, timeout=_SILENCE) as response:
        # read1 returns what is there: a mirror that sends a byte a second cannot hold us for ever.
        while chunk := response.read1(_CHUNK):
            content += chunk
            if len(content) > file.size:
                raise DownloadError(f"refused: it sends more than the file's {file.size:,} bytes")
            if time.monotonic() > deadline:
                raise DownloadError(f"too slow: {len(content):,} bytes in {_DEADLINE:g} s")
            progress.advance(len(chunk))
    if refusal := file.refusal(bytes(content)):
        raise DownloadError(f"refused: {refusal}")
    return bytes(content)


def _reason(error: Exception) -> str:
    if isinstance(error, urllib.error.HTTPError):
        error.close()  # it holds the connection
        return str(error)
    cause = getattr(error, "reason", error)  # a URLError wraps what happened
    if isinstance(cause, TimeoutError):
        return f"no answer within {_SILENCE:g} s"
    return str(cause) or type(cause).__name__


def _store(content: bytes, path: Path) -> Path:
    """Put checked bytes in place in one step; a kill leaves at most a hidden .part file behind."""
    descriptor, partial = tempfile.mkstemp(".part", f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise
    return path


@contextmanager
def _explained(file: PublishedFile, folder: Path) -> Iterator[None]:
    """Say what to do where the disk refuses."""
    try:
        yield
    except OSError as error:
        raise DownloadError(
            f"{file.name} cannot be put into {folder}: {error.strerror or error}. Make that folder "
            f"writable, {_OTHER_FOLDER}"
        ) from error


def _line_end(progress: Progress) -> str:
    """A bar that stopped half-way has left the cursor behind it."""
    on_terminal = progress.stream is not None and progress.stream.isatty()
    return "\n" if on_terminal and 0 < progress.done < progress.total else ""


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
