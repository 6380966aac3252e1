"""Where records go: any callable that takes a dict will do; these two are ready-made.

W&B is `Monitor(model, optimizer, wandb.log)`; MLflow is
`lambda r: mlflow.log_metrics(numbers(r), step=r["step"])`.
"""

import json
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

Record = dict[str, Any]
Sink = Callable[[Record], object]


def numbers(record: Record) -> dict[str, float]:
    """Return the finite numbers of a record: what scalar charts can show.

    Example:
        >>> numbers({"step": 3, "loss": 0.5, "note": "x", "sharpness": float("inf")})
        {'step': 3.0, 'loss': 0.5}
    """
    return {k: float(v) for k, v in _plain(record).items() if isinstance(v, (int, float))}


class JSONLines:
    r"""Append every record to a file, one line each; NaN and infinity become null.

    A file may hold many runs: each line begins with the `run` that it is of.

    Args:
        path: the file; its folder is made.
        run: a name for this run; by default the time and a few random letters. Give a run that is
            resumed the name that it had.

    Example:
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "run.jsonl"
        >>> JSONLines(path, run="first")({"step": 0, "loss": float("nan")})
        >>> path.read_text()
        '{"run": "first", "step": 0, "loss": null}\n'
    """

    def __init__(self, path: str | Path, *, run: str | None = None) -> None:
        self.path = Path(path)
        self.run = _new_name() if run is None else run
        self.path.parent.mkdir(parents=True, exist_ok=True)
        _end_half_line(self.path)

    def __call__(self, record: Record) -> None:
        """Write one line; the file is closed in between, so that a killed run loses nothing."""
        line = json.dumps(_plain({"run": self.run} | record), allow_nan=False)
        with self.path.open("a") as file:
            file.write(line + "\n")


def _new_name() -> str:
    """Return a name that no other run has; of the system's randomness, which nobody seeds."""
    return f"{datetime.now():%Y-%m-%d-%H-%M-%S}-{uuid4().hex[:6]}"


def _end_half_line(path: Path) -> None:
    """End the line that a kill left in the middle, so that it does not take the next one along."""
    if not path.is_file() or path.stat().st_size == 0:
        return
    with path.open("ab+") as file:
        file.seek(-1, 2)
        if file.read() != b"\n":
            file.write(b"\n")


def _plain(record: Record) -> Record:
    """Return a record as strict JSON has it: null for what is not finite, lists for arrays."""
    found: Record = json.loads(json.dumps(record, default=_listed), parse_constant=lambda _: None)
    return found


def _listed(value: Any) -> Any:
    """Return tensors, NumPy's numbers and mappings as Python's own; text for anything else."""
    if isinstance(value, Mapping):
        return dict(value)
    return value.tolist() if hasattr(value, "tolist") else str(value)


class Writer(Protocol):
    """What TensorBoard's SummaryWriter has."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> object:
        """Note one number."""
        ...

    def flush(self) -> object:
        """Write what was noted."""
        ...


class TensorBoard:
    """Show every number as a scalar chart; takes a SummaryWriter, or a folder to open one in."""

    def __init__(self, writer: "Writer | str | Path") -> None:
        self._writer = _open(writer) if isinstance(writer, (str, Path)) else writer

    def __call__(self, record: Record) -> None:
        """Add one point to every chart, and write it: records are rare, and a run may be killed."""
        for name, value in numbers(record).items():
            if name != "step":
                self._writer.add_scalar(name, value, record["step"])
        self._writer.flush()


def _open(folder: str | Path) -> Writer:
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise ImportError(
            "this sink needs TensorBoard: pip install tensorboard; or pass JSONLines('run.jsonl')"
        ) from error
    writer: Writer = SummaryWriter(str(folder))
    return writer
