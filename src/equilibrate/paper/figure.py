"""What a figure of the paper is: settings, compute, draw, describe, claims."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from equilibrate.paper.records import Data, Store
from equilibrate.study.progress import Progress

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Picture

Verdict = Literal["holds", "holds with a correction", "does not hold", "not yet run"]
Records = Sequence[Data]


@dataclass(frozen=True)
class Judgement:
    """One claim judged: ours, what it rests on, and the verdict with its reason."""

    claim: str
    verdict: Verdict
    ours: str
    evidence: str
    numbers: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """Numbers under a figure."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Description:
    """The text that goes with a figure."""

    caption: str
    notes: tuple[str, ...] = ()
    tables: tuple[Table, ...] = ()


@dataclass(frozen=True)
class Figure:
    """One figure; computing, drawing and judging meet only in the records."""

    name: str
    title: str
    settings: Callable[[bool], Any]  # quick or not
    units: Callable[[Any], float]  # how much work, for the progress bar
    compute: Callable[[Any, Store, Progress], Records]
    draw: Callable[[Any, Records], "Picture"]
    describe: Callable[[Any, Records], Description]
    claims: Callable[[Any, Records], list[Judgement]] = lambda settings, records: []
    needs_gpu: bool = False  # in full; quick figures need none
    adds_seeds: bool = False  # whether fewer seeds of its winners may be trained first
    in_quick: bool = True  # whether a quick run that names no figure computes this one
    # Claims that rest on other figures as well, given the records of all figures by name.
    joint: Callable[[Any, Records, Mapping[str, Records]], list[Judgement]] = (
        lambda settings, records, others: []
    )
