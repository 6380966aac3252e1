"""The setting of an arm that is best over seeds, where that is not the one which won at seed 0.

A search chooses at one seed. Where other settings have been trained with more seeds as well, the
winner may turn out to be lucky: it is still the winner, and the other one is shown beside it.
"""

from collections.abc import Mapping, Sequence

from equilibrate.paper.arm_records import Arm, by_settings
from equilibrate.paper.records import Data

SUFFIX = ", steady"
"""Behind the name of an arm: its setting that is best over seeds."""


def steady_arms(arms: Mapping[str, Arm], records: Sequence[Data]) -> dict[str, Arm]:
    """Return that setting of every arm that has one with a lower median than its winner's.

    Both have the same seeds, and more than one.
    """
    found = {}
    for name, arm in arms.items():
        own = by_settings(record for record in records if record["method"] == name)
        rivals = [_over_seeds(arm, alike) for alike in own]
        rivals = [each for each in rivals if _seeds(each) == _seeds(arm) and len(arm.seeds) > 1]
        best = min(rivals, key=lambda each: each.error().median, default=arm)
        if best.error().median < arm.error().median:
            found[name + SUFFIX] = best
    return found


def _seeds(arm: Arm) -> list[int]:
    return [int(record["seed"]) for record in arm.seeds]


def _over_seeds(arm: Arm, records: list[Data]) -> Arm:
    label = f"{arm.label}, best over seeds"
    return Arm(arm.name, label, arm.searched, records[0], records, records)
