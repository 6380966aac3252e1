"""The crew of a cluster: hands errands to workers, writes down what they report.

A group whose worker is lost starts again, from its last checkpoint, on the next worker that is
free. Errands wait here, not in the cluster, so that a worker that joins later finds some.
"""

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from equilibrate.study import checkpoint
from equilibrate.study.cluster.messages import (
    Arrived,
    Errand,
    Lost,
    Message,
    Recorded,
    Refused,
    Said,
    Saved,
)
from equilibrate.study.course import Course, Moment
from equilibrate.study.files import StudyError, say, write_whole
from equilibrate.study.group import Group
from equilibrate.study.provenance import command, versions

if TYPE_CHECKING:
    from equilibrate.study.cluster.workers import Workers

_LOSSES = 5  # of workers by one group with no checkpoint in between: it is the group's own doing


@dataclass
class Attempt:
    """A group at a worker, or waiting for one."""

    group: Group
    updates: int
    losses: int = 0
    trained: float = 0.0  # the work that its worker told of

    def errand(self, threads: int) -> Errand:
        """Return what the worker is asked to do."""
        group, recorded = self.group, self.group.journal.records
        return Errand(
            members=group.members,
            training=[trial.key for trial in group.trials],
            recorded=[trial.key for trial in group.members if trial.key in recorded],
            opened=group.opened,
            checkpoint=checkpoint.read(group.path),
            updates=self.updates,
            folder=str(group.journal.folder),
            versions=versions(),
            threads=threads,
        )


class ClusterCrew:
    """Trains the groups of a study on the workers of a cluster."""

    several = True

    def __init__(self, workers: "Workers") -> None:
        self.workers = workers
        self._waiting: deque[Attempt] = deque()
        self._running: dict[Any, Attempt] = {}

    def call(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Run a function on one worker; return its result."""
        return self.workers.call(function, *arguments)

    def train(
        self, groups: Sequence[Group], updates: int, arrived: Callable[[Group], None]
    ) -> None:
        """Train every group to a number of updates."""
        self._waiting, self._running = deque(Attempt(group, updates) for group in groups), {}
        work = self.workers.share(_without_report(groups[0].course))
        for method in dict.fromkeys(group.members[0].method for group in groups):
            self._tell(groups[0].course, method, 0.0, None)
        while self._waiting or self._running:
            self._hand_out(work)
            for stream in self.workers.ready(list(self._running)):
                self._hear(stream, arrived)

    def _hand_out(self, work: Any) -> None:
        free = self.workers.slots() - len(self._running)
        while self._waiting and free > 0:
            attempt = self._waiting.popleft()
            attempt.trained = 0.0
            stream = self.workers.start(work, attempt.errand(self.workers.threads))
            self._running[stream] = attempt
            free -= 1

    def _hear(self, stream: Any, arrived: Callable[[Group], None]) -> None:
        """Take one message of a worker, or the news that it is lost."""
        attempt = self._running[stream]
        try:
            message = self.workers.next(stream)
        except Lost as error:
            del self._running[stream]
            self._lost(attempt, error)
            return
        self._note(attempt, message)
        if isinstance(message, Arrived):
            del self._running[stream]
            method, epoch = attempt.group.members[0].method, attempt.group.updates
            arrived(attempt.group)
            self._tell(attempt.group.course, method, attempt.group.course.epoch(epoch), None)

    def _lost(self, attempt: Attempt, error: Lost) -> None:
        attempt.losses += 1
        group = attempt.group
        method, trials = group.members[0].method, len(group.trials)
        if attempt.losses >= _LOSSES:
            raise StudyError(
                f"{attempt.losses} workers in a row were lost while they trained {trials} trials "
                f"of {method}, the last one so: {error}. What was recorded is kept. If it is their "
                f"memory, train fewer trials together (--at-once N), then run the same command "
                f"again"
            )
        say(f"a worker was lost; {trials} trials of {method} go on from their last checkpoint")
        self._waiting.appendleft(attempt)

    def _note(self, attempt: Attempt, message: Message) -> None:
        group = attempt.group
        match message:
            case Saved(data):
                write_whole(group.path, data)
                attempt.losses = 0
            case Recorded(record):
                made = {**record["provenance"], "command": command()}
                group.journal.append({**record, "provenance": made})
                group.course.diverged[record["method"]] += 1
                group.course.progress[record["key"]] = group.course.epochs
            case Refused(reason):
                checkpoint.refuse(group.path, reason)
            case Said(text):
                say(text)
            case Arrived():
                _bring_home(group, message)
            case Moment():
                self._progress(attempt, message)

    def _progress(self, attempt: Attempt, moment: Moment) -> None:
        group, course = attempt.group, attempt.group.course
        new = [trial.key for trial in group.trials if trial.key not in group.journal.records]
        course.progress.update(dict.fromkeys(new, moment.epoch))
        course.trained += moment.trained - attempt.trained
        attempt.trained = moment.trained
        self._tell(course, moment.method, moment.epoch, moment.best)

    def _tell(self, course: Course, method: str, epoch: float, best: float | None) -> None:
        training, waiting = (_count(attempts)[method] for attempts in (
            self._running.values(), self._waiting
        ))  # fmt: skip
        course.tell(method, training, epoch, best, waiting=waiting, alone=False)


def _count(attempts: Any) -> Counter[str]:
    found: Counter[str] = Counter()
    for attempt in attempts:
        found[attempt.group.members[0].method] += len(attempt.group.trials)
    return found


def _bring_home(group: Group, message: Arrived) -> None:
    """Let a group stand where its worker has brought it."""
    group.curves.update(message.curves)
    group.trials = [trial for trial in group.trials if trial.key in message.training]
    group.updates, group.seconds = message.updates, message.seconds
    group.trained_at, group.opened = message.place, True
    new = [trial.key for trial in group.trials if trial.key not in group.journal.records]
    epoch = group.course.epoch(message.updates)
    group.course.progress.update(dict.fromkeys(new, epoch))


def _silent(moment: Moment) -> None:
    """A worker's course reports through its errand."""


def _without_report(course: Course) -> Course:
    return replace(course, report=_silent, progress={}, diverged=Counter())
