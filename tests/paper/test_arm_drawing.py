"""Learning curves of several tasks: two side by side, each above its own panel against time."""

import pytest

from equilibrate.paper.arm_drawing import TITLES, Column, draw_columns
from equilibrate.paper.drawing import BLACK, save
from equilibrate.paper.momentum_arms import MOMENTUM_ARMS, momentum_arms
from tests.paper.made_up import falling, made_up


def _column(task, seconds):
    runs = [made_up(MOMENTUM_ARMS, task, "nag", falling(0.5), momentum=0.9)]
    return Column(task, momentum_arms(runs, task), {"nag": 1e-3} if seconds else {})


@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("number", [1, 2, 3, 4])
def test_tasks_stand_two_by_two_with_their_times_below(number, timed, tmp_path):
    tasks = list(TITLES)[:number]
    picture = draw_columns([_column(task, timed) for task in tasks], {"nag": BLACK}, "updates")
    save(picture, tmp_path / "drawn", ["png"])
    panels = picture.axes
    assert len(panels) == number * (1 + timed)
    titles = [panel.get_title(loc="left") for panel in panels]
    named = {title: panel for title, panel in zip(titles, panels, strict=True) if title}
    assert list(named) == [TITLES[task] for task in tasks]
    assert all(len(panel.get_lines()) for panel in panels)
    left = {round(panel.get_position().x0, 1) for panel in panels}
    assert len(left) == min(number, 2)
    for titled in named.values():
        place = titled.get_position()
        below = [p for p in panels if p is not titled and p.get_position().y1 < place.y0]
        column = [p for p in below if abs(p.get_position().x0 - place.x0) < 0.1]
        if timed:
            nearest = max(column, key=lambda p: p.get_position().y1)
            assert "minutes" in nearest.get_xlabel()
