"""The terms of a fight: all that decides what it trains, as values that a file can hold."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from equilibrate.wins.fight import Plan
from equilibrate.wins.fighters import BASELINE, FIGHTERS, OURS, SHIPPED_GROWTH
from equilibrate.wins.grid import MOST_EXTENSIONS, PER_DECADE
from equilibrate.wins.tasks import TASKS, Task


@dataclass(frozen=True)
class Terms:
    """The arguments of `equilibrate wins` that its records depend on; the same names and defaults.

    Example:
        >>> terms = Terms(("decays",), first=100, ramp=0.05)
        >>> terms.name, terms.command
        ('ramp-100-2-5-growth-2', 'equilibrate wins decays --first 100 --ramp 0.05')
        >>> Terms.of(terms.as_text()) == terms
        True
    """

    tasks: tuple[str, ...]
    first: int = 0
    tuning: int = 2
    finals: int = 5
    per_decade: int = PER_DECADE
    extensions: int = MOST_EXTENSIONS
    ramp: float = 0.0
    choose: str = "mean"
    growth_limit: float | None = SHIPPED_GROWTH
    epochs: int | None = None
    fighters: tuple[str, ...] | None = None

    @classmethod
    def of(cls, text: str) -> "Terms":
        """Read what `as_text` wrote, also before there was a growth limit."""
        return cls.chosen({"growth_limit": None, **json.loads(text)})

    @classmethod
    def chosen(cls, values: Mapping[str, Any]) -> "Terms":
        """Take the fields out of a mapping that may hold more."""
        own: dict[str, Any] = {f.name: values[f.name] for f in fields(cls) if f.name in values}
        own |= {name: tuple(value) for name, value in own.items() if isinstance(value, list)}
        return cls(**own)

    def as_text(self) -> str:
        """Return the terms as JSON."""
        return json.dumps(asdict(self), indent=1) + "\n"

    @property
    def name(self) -> str:
        """Schedule, first instance, numbers of tuning and finals, unusual choice, limit of ours."""
        choice = "" if self.choose == Terms.choose else f"-{self.choose}"
        growth = "" if self.growth_limit is None else f"-growth-{self.growth_limit:g}"
        return f"{self.page}-{self.first}-{self.tuning}-{self.finals}{choice}{growth}"

    @property
    def page(self) -> str:
        """The page that the fight belongs to."""
        return "ramp" if self.ramp else "cosine"

    @property
    def command(self) -> str:
        """The command that fights by these terms."""
        words = ["equilibrate", "wins", *self.tasks]
        for field in fields(self)[1:]:
            value = getattr(self, field.name)
            if value != field.default:
                values = value if isinstance(value, tuple) else (value,)
                words += [f"--{field.name.replace('_', '-')}", *map(_word, values)]
        return shlex.join(words)

    @property
    def plan(self) -> Plan:
        """The instances, the grids and the schedule."""
        middle = self.first + self.tuning
        tuning = tuple(range(self.first, middle))
        finals = tuple(range(middle, middle + self.finals))
        return Plan(tuning, finals, self.per_decade, self.extensions, self.ramp, self.choose)

    def with_tasks(self, others: tuple[str, ...]) -> "Terms":
        """Return the same terms for more tasks, in the order of the list of all."""
        return replace(self, tasks=tuple(t for t in TASKS if t in self.tasks or t in others))

    def made(self) -> list[Task]:
        """Return the tasks, or raise, naming those that exist."""
        return [self._task(name) for name in self.tasks]

    def _task(self, name: str) -> Task:
        if name not in TASKS:
            raise ValueError(f"no task {name!r}; there are {', '.join(TASKS)}")
        task = TASKS[name].shortened(self.epochs) if self.epochs else TASKS[name]
        task = replace(task, growth_limit=self.growth_limit)
        if not self.fighters:
            return task
        if not {OURS, BASELINE} <= set(self.fighters):
            raise ValueError(
                f"{OURS} and {BASELINE} must be among the fighters: one fights, one times"
            )
        return replace(task, fighters=tuple(f for f in FIGHTERS if f in self.fighters))


def _word(value: Any) -> str:
    return "none" if value is None else str(value)
