"""The work of a study as a part of a figure's progress: never more than it is."""

import pytest

from equilibrate.paper.studies import _Counted
from equilibrate.study.course import Moment
from equilibrate.study.progress import Progress


def moment(trained, done, total=20.0):
    return Moment("sgd", 1, 0.0, None, trained, done, total)


MOMENTS = {
    "all trained here": ([(5, 5), (12, 12), (20, 20)], 20),
    "some of it recorded": ([(1, 9), (4, 12), (12, 20)], 12),
    "trials that diverged need no more": ([(4, 4), (6, 18), (9, 20), (14, 20)], 8),
    "a worker was lost": ([(5, 10), (5, 6), (9, 10), (14, 15), (19, 20)], 15),
    "nothing to report": ([], 0),
}


@pytest.mark.parametrize("case", MOMENTS)
def test_the_work_adds_up_to_the_whole_once(case):
    reported, trained = MOMENTS[case]
    progress = Progress("figure", 100.0, stream=None)  # other studies are the rest
    counted, before = _Counted(progress), 0.0
    for each in reported:
        counted.report(moment(*each))
        assert before <= progress.done <= 20
        before = progress.done
    counted.all_of(20.0)
    assert progress.done == 20
    assert progress.worked == trained


def test_a_report_without_news_shows_nothing(monkeypatch):
    shown = []
    monkeypatch.setattr(Progress, "_show", lambda self: shown.append(self.done))
    counted = _Counted(Progress("figure", 20.0, stream=None))
    for _ in range(3):
        counted.report(moment(20, 20))
    counted.all_of(20.0)
    assert shown == [20.0]
