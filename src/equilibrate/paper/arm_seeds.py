"""Which seeds train beside a search that goes straight to the end: those of whoever may win."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from equilibrate.paper.arm_plan import ArmSearch
from equilibrate.paper.arm_records import furthest
from equilibrate.paper.records import Data, Store
from equilibrate.paper.studies import study_folder
from equilibrate.study.journal import read_records
from equilibrate.study.naming import canonical
from equilibrate.study.trial import Trial


def winners(asked: ArmSearch, records: Sequence[Data]) -> dict[str, Mapping[str, Any]]:
    """Return the settings of every arm's best trial, of the arms that have any."""
    best = {arm: furthest(r for r in records if r["method"] == arm) for arm in asked.arms}
    return {arm: found["settings"] for arm, found in best.items() if found is not None}


def beside(
    asked: ArmSearch, store: Store, searched: Sequence[Trial], every: Sequence[Trial]
) -> list[Trial]:
    """Return those of every trial's other seeds that train beside the search, or are recorded.

    Those of the winners of the arms whose every trial is recorded, on these data. Of an arm that
    is to train ahead (`Store.ahead`) those of all that may still win: of the best so far, and of
    what is missing.
    """
    folders = {study_folder(store, asked.study(trial.method)) for trial in searched}
    there = {key: record for folder in folders for key, record in read_records(folder).items()}
    missing = [trial for trial in searched if trial.key not in there]
    undecided = {trial.method for trial in missing} - set(store.ahead)
    whole = [there[t.key] for t in searched if t.key in there and t.method not in undecided]
    hopes = {_what(arm, own) for arm, own in winners(asked, whole).items()}
    hopes |= {_what(t.method, t.settings) for t in missing if t.method in store.ahead}
    return [t for t in every if t.key in there or _what(t.method, t.settings) in hopes]


def beyond(asked: ArmSearch, stages: Sequence[Sequence[Trial]]) -> float:
    """Return the work of the seeds that `ArmSearch.work` does not count: of who may not win."""
    seeds = Counter(trial.method for stage in stages for trial in stage if trial.seed)
    return asked.seed_epochs * sum(max(0, n - len(asked.seeds)) for n in seeds.values())


def _what(arm: str, settings: Mapping[str, Any]) -> str:
    return canonical([arm, settings])
