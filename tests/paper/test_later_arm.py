"""Arms that came after records were published: these stay what they are, those alone are added."""

import gzip
import shutil
from dataclasses import replace

import pytest

from equilibrate import cli
from equilibrate.paper import arm_timing, figure3, figure3_claims, figures, run, studies
from equilibrate.paper.arm_records import arms_of
from equilibrate.paper.arm_search import split
from equilibrate.paper.arms import ARMS, LATER
from equilibrate.paper.figure3_drawing import COLOURS
from equilibrate.paper.records import Store
from equilibrate.study.journal import read_records
from equilibrate.study.progress import Progress
from tests.paper.made_up import falling, made_up
from tests.paper.shrunken import FIGURE3, PROBLEMS, shrink

ADDED, *RIVALS = LATER
MEMORY = {"esgd-memory": "decay", "rmsprop-memory": "alpha", "jacobi-memory": "decay"}


def _with(*arms):
    tasks = tuple(replace(task, arms=(*task.arms, *arms)) for task in FIGURE3.tasks)
    return replace(FIGURE3, tasks=tasks)


WITH_IT, WITH_ALL = _with(ADDED), _with(*LATER)


def computed(settings, store):
    going = Progress("figure3", figure3.units(settings), stream=None)
    found = figure3.compute(settings, store, going, PROBLEMS)
    assert going.done == going.total or store.frozen
    return found


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    """Records of a time when there was no such arm."""
    folder = tmp_path_factory.mktemp("before")
    return folder, computed(FIGURE3, Store(folder))


@pytest.fixture
def folder(before, tmp_path):
    """A copy of them, packed as they are published."""
    copied = tmp_path / "records"
    shutil.copytree(before[0], copied)
    for path in copied.glob("*/records.jsonl"):
        path.with_name("records.jsonl.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    return copied


@pytest.fixture
def trained(monkeypatch):
    """The trials that were trained, by study problem, method and seed."""
    seen, alone = {}, studies.Alone

    def spy(problem, method, members, device):
        seen.update({trial.key: (problem.name, trial.method, trial.seed) for trial in members})
        return alone(problem, method, members, device)

    monkeypatch.setattr(studies, "Alone", spy)
    return seen


def _drawn(settings, records):
    panel, *_ = figure3.draw(settings, records).axes
    return panel.get_legend_handles_labels()[1]


def test_records_without_it_are_what_they_were(before, folder):
    found = computed(WITH_IT, Store(folder, frozen=True))
    assert found == before[1]
    assert figure3.describe(WITH_IT, found) == figure3.describe(FIGURE3, before[1])
    assert figure3.claims(WITH_IT, found) == figure3.claims(FIGURE3, before[1])
    assert _drawn(WITH_IT, found) == _drawn(FIGURE3, before[1])


def test_an_arm_with_a_trial_missing_is_not_shown(before, folder):
    whole = computed(WITH_IT, Store(folder, timed=False))
    for path in folder.glob("*/records.jsonl"):
        lines = path.read_text().splitlines()
        last = max(i for i, line in enumerate(lines) if ADDED in line and '"seed":0' in line)
        path.write_text("\n".join(lines[:last] + lines[last + 1 :]) + "\n")
    found = computed(WITH_IT, Store(folder, frozen=True))
    assert found == before[1] != whole


def test_a_round_is_shown_before_the_next_is_recorded(folder, trained):
    one = computed(WITH_IT, Store(folder, timed=False))
    assert computed(WITH_ALL, Store(folder, frozen=True)) == computed(
        WITH_IT, Store(folder, frozen=True)
    )
    trained.clear()
    both = computed(WITH_ALL, Store(folder, timed=False))
    assert {method for _, method, _ in trained.values()} == set(RIVALS)
    shown = {record["method"] for record in both if "timing" not in record}
    assert shown - {record["method"] for record in one if "timing" not in record} == set(RIVALS)


@pytest.mark.parametrize("seeds", [1, FIGURE3.seeds])
def test_only_what_is_missing_is_trained(before, folder, trained, seeds):
    settings = replace(WITH_IT, seeds=seeds)
    found, _ = split(computed(settings, Store(folder, timed=False)))
    searched = [(0, FIGURE3.trials), *((seed, 1) for seed in range(1, seeds))]
    asked = [(problem, ADDED, seed) for problem in ("MNIST", "CURVES-like") for seed, n in searched
             for _ in range(n)]  # fmt: skip
    assert sorted(trained.values()) == sorted(asked)
    for task in WITH_IT.tasks:
        arm = arms_of(found, task.problem)[ADDED]
        assert (len(arm.searched), len(arm.seeds)) == (FIGURE3.trials, seeds)
        assert arm.trained == task.long_epochs
        assert arm.best["settings"]["decay"] == 0.9995
        old, now = (read_records(at / f"figure3-{task.problem}") for at in (before[0], folder))
        assert {key: now[key] for key in old} == old


def test_the_command_trains_it_alone_beside_published_records(folder, trained, monkeypatch):
    monkeypatch.setattr(run, "FIGURES", dict(figures.FIGURES))
    monkeypatch.setattr(figures, "FIGURES", run.FIGURES)
    shrink()
    own = replace(run.FIGURES["figure3"], settings=lambda quick: WITH_IT)
    monkeypatch.setitem(run.FIGURES, "figure3", own)
    monkeypatch.setattr(arm_timing, "_measure", None)
    command = ["paper", "figure3", "--task", "mnist", "--records-only", "--untimed", "--seeds", "1"]
    assert cli.main([*command, "--out", str(folder.parent)]) == 0
    assert list(trained.values()) == [("MNIST", ADDED, 0)] * FIGURE3.trials


def test_times_of_the_other_arms_are_used_until_all_are_measured(before, folder):
    _, old = split(before[1])
    computed(WITH_IT, Store(folder, timed=False))
    files = set(folder.glob("figure3-timing-*"))
    records = computed(WITH_IT, Store(folder, frozen=True))
    assert split(records)[1] == old
    for table in figure3.describe(WITH_IT, records).tables:
        assert [row[-1] == "-" for row in table.rows] == [False] * (len(table.rows) - 1) + [True]
    figure3.draw(WITH_IT, records)

    timed = computed(WITH_IT, Store(folder))
    assert len(set(folder.glob("figure3-timing-*")) - files) == len(WITH_IT.tasks)
    assert {task.problem: set(task.arms) for task in WITH_IT.tasks} == {
        task: set(seconds) for task, seconds in split(timed)[1].items()
    }
    assert computed(WITH_IT, Store(folder, frozen=True)) == timed


def test_it_is_drawn_and_told_to_be_ours(folder):
    records = computed(WITH_IT, Store(folder, timed=False))
    described = figure3.describe(WITH_IT, records)
    label = ARMS[ADDED].label
    assert [table.rows[-1][0] for table in described.tables] == [label, label]
    assert [note.startswith(f"{label} is not the paper's") for note in described.notes][-1]
    assert label in _drawn(WITH_IT, records)


def test_every_arm_has_a_look_of_its_own(folder):
    assert COLOURS.keys() == ARMS.keys()
    assert len({(colour, arm in LATER) for arm, colour in COLOURS.items()}) == len(ARMS)
    panel, *_ = figure3.draw(WITH_ALL, computed(WITH_ALL, Store(folder, timed=False))).axes
    lines = {line.get_label(): (line.get_color(), line.get_linestyle()) for line in panel.lines}
    arms = [*FIGURE3.tasks[0].arms, *LATER]
    assert [lines[ARMS[arm].label] for arm in arms] == [
        (COLOURS[arm], "--" if arm in LATER else "-") for arm in arms
    ]


def test_one_seed_is_drawn_thin_beside_arms_that_have_several(folder):
    computed(replace(WITH_IT, seeds=1), Store(folder, timed=False))
    panel, *_ = figure3.draw(WITH_IT, computed(WITH_IT, Store(folder, frozen=True))).axes
    widths = {line.get_label(): line.get_linewidth() for line in panel.lines}
    ours = widths[ARMS[ADDED].label]
    assert {ours < widths[ARMS[arm].label] for arm in FIGURE3.tasks[0].arms} == {True}


@pytest.mark.parametrize("arm", [arm for arm in ARMS if arm not in LATER])
def test_earlier_arms_draw_what_they_drew(arm):
    assert figure3._drawn(figure3.settings(False), arm) == ARMS[arm].settings(8)


@pytest.mark.parametrize(("arm", "base"), LATER.items())
def test_they_are_earlier_arms_but_for_the_memory(arm, base):
    one, other, memory = ARMS[base], ARMS[arm], {MEMORY[arm]: 0.9995}
    assert other.fixed == {**one.fixed, **memory}
    assert other.optimizer == one.optimizer
    assert other.space == {k: v for k, v in one.space.items() if k not in memory}
    full = figure3.settings(False)
    drawn = [{**own, **memory} for own in figure3._drawn(full, base)]
    assert figure3._drawn(full, arm) == drawn


def test_the_full_figure_searches_it_apart_and_the_quick_one_does_not():
    for task in figure3.settings(False).tasks:
        first, *later = figure3._searched(figure3.settings(False), task).rounds
        assert tuple(first) == tuple(arm for arm in ARMS if arm not in LATER)
        numbers = [{arm: len(own) for arm, own in each.items()} for each in later]
        assert numbers == [{ADDED: 8}, dict.fromkeys(RIVALS, 8)]
    for task in figure3.settings(True).tasks:
        (only,) = figure3._searched(figure3.settings(True), task).rounds
        assert tuple(only) == task.arms


# --- the sentences of the paper

ENDS = {"sgd": 2.4, "rmsprop": 1.8, "jacobi": 1.7, "esgd-warm": 1.0, "esgd": 1.05}
CASES = {"far ahead": 0.1, "far behind": 3.0, "in between": 1.02}


def _runs(arm, end, seeds, epochs=2500, lr=0.03):
    runs = [
        made_up(ARMS, task, arm, falling(end * (1 + 0.02 * seed)), seed, lr=lr)
        for task in ("mnist", "curves-like")
        for seed in range(seeds)
    ]
    return [*runs, made_up(ARMS, "mnist", arm, falling(0.8 * end, 51), epochs=epochs, lr=lr)]


def _judged(records):
    return {each.claim: each for each in figure3_claims.claims(records)}


@pytest.mark.parametrize("lr", [0.03, 0.0995], ids=["inside", "at an edge"])
@pytest.mark.parametrize("seeds", [1, 3])
@pytest.mark.parametrize("end", CASES.values(), ids=CASES)
def test_no_sentence_is_judged_by_it_and_some_tell_of_it(end, seeds, lr):
    others = [run for arm, last in ENDS.items() for run in _runs(arm, last, 3)]
    without = _judged(others)
    beside = _judged([*others, *_runs(ADDED, end, seeds, epochs=5000, lr=lr)])
    assert len(without) == 8
    for claim, judged in beside.items():
        said, *told = judged.ours.split("; not judged by what is ours: ")
        assert replace(judged, ours=said) == without[claim]
        assert len(told) == (claim in figure3_claims.BESIDE)
        for words in told:
            task = figure3_claims.BESIDE[claim]
            assert words.startswith(f"{ARMS[ADDED].label} ({task} ")
            assert words.count(ARMS[ADDED].label) == 1
            assert words.count("one seed") == (seeds == 1)
            assert ("after 5000 epochs" in words) == (task == "MNIST")  # what went on after 1,000
            assert ("upper edge" in words) == (lr == 0.0995)
