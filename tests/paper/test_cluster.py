"""The studies behind the figures on a (pretended) cluster: the records of a local run."""

import pytest
import torch

from equilibrate.paper import robustness
from equilibrate.paper.records import Store
from equilibrate.study.cluster.crew import ClusterCrew
from equilibrate.study.journal import read_records
from equilibrate.study.progress import Progress
from tests.paper.shrunken import PROBLEMS, ROBUSTNESS
from tests.study import small
from tests.study.cluster.pretended import Pretended


@pytest.fixture
def _one_thread():
    """As an errand has: sums by two may round otherwise."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_one_thread")
def test_trials_train_on_the_cluster_with_the_numbers_of_a_local_run(tmp_path):
    """In stacks and, for row-column equilibration, alone."""
    workers = Pretended()
    crews = {"home": None, "away": ClusterCrew(workers)}
    numbers = {}
    for place, crew in crews.items():
        store = Store(tmp_path / place, at_once=3, crew=crew)
        robustness.compute(ROBUSTNESS, store, Progress("", 1, stream=None), PROBLEMS)
        folders = sorted(path.name for path in (tmp_path / place).iterdir() if path.is_dir())
        found = [small.numbers(read_records(tmp_path / place / folder)) for folder in folders]
        numbers[place] = folders, found
    assert numbers["away"] == numbers["home"]
    trials = sum(map(len, numbers["away"][1]))
    assert sum(len(errand.members) for errand in workers.errands) >= trials > 0
