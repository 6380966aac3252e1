"""What a study has decided once and must decide the same way when it is resumed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from equilibrate.study.files import explained, put_aside, say, write_whole


class Choices:
    """`FOLDER/choices.json`: plain values by name, read afresh at every call, replaced whole.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     choices = Choices(folder)
        ...     choices.remember("stack sgd", lambda: 16), choices.remember("stack sgd", lambda: 1)
        (16, 16)
    """

    def __init__(self, folder: Path | str) -> None:
        self.path = Path(folder) / "choices.json"

    def get(self, name: str, default: Any = None) -> Any:
        """Return what was decided, or the default where nothing was."""
        return self._read().get(name, default)

    def all(self) -> dict[str, Any]:
        """Return everything that was decided, by name."""
        return self._read()

    def set(self, name: str, value: Any) -> None:
        """Decide, for this run and every later one."""
        text = json.dumps({**self._read(), name: value}, indent=1, sort_keys=True, allow_nan=False)
        write_whole(self.path, text.encode() + b"\n")

    def remember(self, name: str, decide: Callable[[], Any]) -> Any:
        """Return what was decided under this name; decide now where nothing was.

        The value passes through JSON either way, so that the first run sees what later ones see.
        """
        if name not in self._read():
            self.set(name, decide())
        return self.get(name)

    def _read(self) -> dict[str, Any]:
        with explained(self.path):
            text = self.path.read_bytes() if self.path.exists() else b"{}"
        try:
            return dict(json.loads(text))
        except (ValueError, TypeError) as error:
            aside = put_aside(self.path)
            say(f"{self.path}: damaged ({error}); kept as {aside.name}, decided anew")
            return {}
