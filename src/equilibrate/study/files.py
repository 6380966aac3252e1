"""Files that are whole or absent, and errors that say what to do about a disk."""

import contextlib
import errno
import os
import sys
from collections.abc import Iterator
from pathlib import Path

_ADVICE = {
    errno.ENOSPC: "the disk is full; free some space",
    errno.EDQUOT: "your share of the disk is used up; free some space",
    errno.EFBIG: "the limit on the size of a file is reached; raise it (ulimit -f)",
    errno.EROFS: "the folder is read-only; make it writable or choose another",
    errno.EACCES: "the folder is not yours to write in; change its permissions or choose another",
    errno.EPERM: "the folder is not yours to write in; change its permissions or choose another",
    errno.EIO: "the disk reports a fault; check it or copy the folder to another",
    errno.ENOTDIR: "a file is in the place of the folder; choose another",
    errno.EEXIST: "a file is in the place of the folder; choose another",
    errno.EISDIR: "a folder is in the place of the file; choose another",
}


class StudyError(RuntimeError):
    """Raised where a study cannot go on; the text says what to do, and the records are intact."""


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn the operating system's refusal into a StudyError that says what to do next."""
    try:
        yield
    except OSError as error:
        raise StudyError(
            f"{path}: {_advice(error)}. Then run the same command again: what was recorded "
            f"is kept, and the study goes on from there"
        ) from error


def told(error: OSError) -> str:
    """Return what the operating system refused and what to do; of other errors their text.

    Example:
        >>> told(OSError(errno.ENOSPC, "No space left on device", "out/table.md"))
        'out/table.md: the disk is full; free some space'
    """
    if error.errno is None:  # one of ours: its text is for the user
        return str(error)
    return f"{error.filename}: {_advice(error)}" if error.filename else _advice(error)


def _advice(error: OSError) -> str:
    return _ADVICE.get(error.errno or 0, f"{error.strerror or error}; look at that file")


SAID: list[str] = []
"""What the user was told so far: a display that draws over its own lines must not draw over it."""


def say(text: str) -> None:
    """Tell the user on stderr, on a line of its own (a progress bar may be on the present one)."""
    SAID.append(text)
    print(f"\n{text}", file=sys.stderr, flush=True)


def require_folder(folder: Path) -> None:
    """Raise where a file is in the place of a folder, or of one above it; nothing is made."""
    first = next(path for path in (folder, *folder.parents) if path.exists())
    if not first.is_dir():
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder))


def meant(path: Path) -> Path:
    """Return the file that a path leads to; renaming onto a link would replace the link.

    Raises where a pipe or a device is there: renaming onto it would be its end.
    """
    place = Path(os.path.realpath(path))
    if place.exists() and not (place.is_file() or place.is_dir()):
        raise OSError(errno.EINVAL, "no ordinary file is there (a pipe, a device)", str(path))
    return place


def make_folder(folder: Path) -> None:
    """Make a folder, and make sure that it outlives a power cut."""
    if not folder.is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        sync_folder(folder.parent)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder outlive a power cut; fsync of a file does not cover its name."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes | memoryview) -> None:
    """Write every byte or raise: a nearly full disk takes a part first, and says so afterwards."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def write_whole(path: Path, *parts: bytes | memoryview) -> None:
    """Put a file in place whole or not at all, whatever happens in between.

    The parts go to `path.partial`, which is synchronised and then renamed. The name is fixed, so
    that what a kill leaves behind is overwritten by the next attempt: one writer at a time.
    """
    with explained(path):
        place = meant(path)
    partial = place.with_name(f"{place.name}.partial")
    try:
        with explained(path):
            make_folder(place.parent)
            _write_synced(partial, *parts)
            os.replace(partial, place)
            sync_folder(place.parent)
    except StudyError:
        with contextlib.suppress(OSError):  # on a full disk its space is wanted back
            partial.unlink()
        raise


def append_synced(path: Path, data: bytes) -> None:
    """Add bytes to the end of a file and make sure that they outlive a power cut."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def put_aside(path: Path) -> Path:
    """Rename a damaged file to the first free `path.damaged-N`, and return that name."""
    number = 1
    while (aside := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    with explained(path):
        os.replace(path, aside)
    return aside


def _write_synced(path: Path, *parts: bytes | memoryview) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        for part in parts:
            write_all(descriptor, part)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
