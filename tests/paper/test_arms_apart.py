"""--arm: methods of a study trained apart; their records, one behind the other, are the study's."""

from dataclasses import replace

import pytest

from equilibrate import cli
from equilibrate.paper import figures, run
from equilibrate.paper.records import Store
from equilibrate.study.progress import Progress
from tests.paper.shrunken import FIGURE3, MOMENTUM, PROBLEMS, TRAINING

ASKED = {
    "figure3": replace(FIGURE3, tasks=FIGURE3.tasks[:1], trials=1),
    "momentum": replace(MOMENTUM, tasks=MOMENTUM.tasks[:1]),
    "damped": replace(MOMENTUM, study="damped", tasks=MOMENTUM.tasks[:1]),
}


def computed(name, store, *arms):
    """Return the trained records of some arms of a figure, all where none is named."""
    figure = replace(figures.FIGURES[name], settings=lambda quick: ASKED[name])
    settings = run._part(figure, quick=False, means=run.Means(arms=arms))
    module, _ = TRAINING[{"damped": "momentum"}.get(name, name)]
    going = Progress(name, module.units(settings), stream=None)
    found = module.compute(settings, store, going, PROBLEMS)
    assert store.frozen or going.done == going.total
    return [record for record in found if "timing" not in record]


@pytest.mark.parametrize("name", ASKED)
def test_arms_trained_apart_are_the_study_when_joined(name, tmp_path):
    arms = run.arms_of(ASKED[name])
    assert len(arms) >= 4
    joined = tmp_path / "joined" / f"{name}-mnist"
    joined.mkdir(parents=True)
    for arm in arms:
        own = computed(name, Store(tmp_path / arm, timed=False), arm)
        assert {record["method"] for record in own} == {arm}
        text = (tmp_path / arm / joined.name / "records.jsonl").read_text()
        with (joined / "records.jsonl").open("a") as file:
            file.write(text)
    whole = computed(name, Store(tmp_path / "whole", timed=False))
    frozen = computed(name, Store(tmp_path / "joined", frozen=True))
    assert [_numbers(record) for record in frozen] == [_numbers(record) for record in whole]


def _numbers(record):
    return record["key"], record["curve"]["error"]


def test_a_task_without_the_arm_is_left_out():
    quick = run._part(figures.FIGURES["figure3"], quick=True, means=run.Means(arms=("jacobi",)))
    assert [(task.problem, task.arms) for task in quick.tasks] == [("curves-like", ("jacobi",))]


def test_where_no_task_has_the_arm_the_command_says_so(tmp_path, capsys):
    command = f"figure3 --quick --task mnist --arm jacobi --out {tmp_path / 'out'}"
    assert cli.main(["paper", *command.split()]) == 2
    said = capsys.readouterr().err
    assert (
        "figure3: not run, no task asked for has jacobi; its tasks are curves-like, mnist" in said
    )
    assert not (tmp_path / "out").exists()


def test_an_arm_that_a_figure_has_not_is_refused(capsys):
    for command, said in {
        "figure1 --arm esgd": "--arm is not for figure1, but for figure3",
        "figure3 --arm adam": "figure3 has no arm 'adam'; it has sgd",
        "--arm esgd": "--arm needs the name of a figure",
    }.items():
        assert cli.main(["paper", *command.split()]) == 2
        assert said in capsys.readouterr().err
