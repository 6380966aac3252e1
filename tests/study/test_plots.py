"""The picture: what is drawn, that nothing is covered, and that it needs matplotlib only then."""

import subprocess
import sys
from dataclasses import replace

import pytest

from equilibrate.study import looks, plots
from equilibrate.study.methods import METHODS
from equilibrate.study.summary import summarize
from tests.study.synthetic import record, study

pytestmark = pytest.mark.filterwarnings("error")  # matplotlib warns where a layout fails

NAMES = list(METHODS)
HUGE = record("sgd", [9.0, 1e30], settings={"lr": 0.09}, status="diverged")

CASES = {
    "three": study(NAMES[:3]),
    "six, one seed, halving": study(NAMES[:6], seeds=1, halving=True),
    "all": study(NAMES),
    "one method, one trial": study(["sgd"], trials=1, seeds=1),
    "nothing finished": [HUGE],
    "one diverged to 1e30": [*study(["sgd", "adam"], seeds=2), HUGE],
    "diverged from the start": [
        record("sgd", [], settings={"lr": 0.09}, status="diverged", final_error=None)
    ],
    "negative errors": [record("sgd", [1.0, -1.0, -2.0])],
    "no learning rate": [record("sgd", [3.0, 2.0, 1.0], settings={"step": 3})],
    "one epoch": [record("sgd", [3.0, 2.0]), record("adam", [3.0, 1.0])],
    "all errors equal": [record("sgd", [3.0, 3.0]), record("adam", [3.0, 3.0])],
    "times differ": [record("sgd", [3.0, 2.0]), record("adam", [3.0, 1.0], together=4)],
    "an error of zero": [record("sgd", [3.0, 0.0])],
}
SIZES = [(10.5, 8.0), (6.0, 4.8)]


def drawn(case, size=SIZES[0]):
    records = CASES[case]
    methods = [METHODS[name] for name in NAMES if any(r["method"] == name for r in records)]
    with plots.style(size):
        picture = plots.figure(records, methods, summarize(records, methods), size)
        picture.draw_without_rendering()
    return picture


def write(case, folder):
    records = CASES[case]
    methods = [METHODS[name] for name in NAMES if any(r["method"] == name for r in records)]
    return plots.draw(records, methods, summarize(records, methods), folder / "compare")


@pytest.mark.parametrize("case", CASES)
def test_every_case_is_written_as_png_and_svg(case, tmp_path):
    png, svg = write(case, tmp_path)
    assert png.read_bytes().startswith(b"\x89PNG")
    assert "</svg>" in svg.read_text()


@pytest.mark.parametrize("case", ["three", "six, one seed, halving", "all", "times differ"])
@pytest.mark.parametrize("size", SIZES)
def test_the_legend_covers_nothing_and_stays_on_the_page(case, size):
    picture = drawn(case, size)
    legend = picture.legends[0].get_window_extent()
    assert picture.bbox.x0 <= legend.x0 < legend.x1 <= picture.bbox.x1
    for axes in picture.axes:
        assert not legend.overlaps(axes.get_tightbbox())


@pytest.mark.parametrize("case", ["three", "all"])
def test_titles_and_ticks_do_not_run_into_each_other(case):
    picture = drawn(case, SIZES[1])
    boxes = [axes.get_tightbbox() for axes in picture.axes]
    assert not any(a.overlaps(b) for a in boxes for b in boxes if a is not b)


@pytest.mark.parametrize("case", ["three", "all", "one diverged to 1e30"])
def test_axes_have_at_least_two_labelled_ticks_in_view(case):
    picture = drawn(case)
    for axes in picture.axes:
        for axis, limits in ((axes.xaxis, axes.get_xlim()), (axes.yaxis, axes.get_ylim())):
            places = [tick.get_loc() for tick in axis.get_major_ticks() if tick.label1.get_text()]
            assert sum(limits[0] <= place <= limits[1] for place in places) >= 2


def test_all_methods_look_different():
    looks = plots._looks(list(METHODS.values()))
    assert len({(look.colour, str(look.dashes)) for look in looks.values()}) == len(METHODS)
    assert len({(look.colour, look.marker) for look in looks.values()}) == len(METHODS)


def test_a_trial_on_its_way_to_infinity_leaves_the_others_readable():
    by_updates = drawn("one diverged to 1e30").axes[0]
    assert by_updates.get_ylim()[1] < 1e3


def test_winners_have_a_band_over_seeds_and_the_others_are_pale():
    by_updates = drawn("three").axes[0]
    assert len(by_updates.collections) == 3
    pale = [line for line in by_updates.lines if line.get_alpha() == 0.25]
    assert len(pale) == 3 * (8 - 1)


def test_times_that_differ_are_left_out_with_the_reason():
    by_time = drawn("times differ").axes[1]
    assert len(by_time.lines) == 0
    told = by_time.texts[0].get_text().replace("\n", " ")
    assert "trials trained together" in told
    assert "--at-once 1, with another --out, trains one trial at a time" in told


@pytest.mark.parametrize(
    ("target", "seen"), [(1e-9, False), (1.0, True), (5.0, True), (1e9, False)]
)
@pytest.mark.parametrize("size", SIZES)
def test_a_target_out_of_reach_leaves_the_curves_readable(target, seen, size):
    records, methods = CASES["three"], [METHODS[name] for name in NAMES[:3]]
    with plots.style(size):
        picture = plots.figure(records, methods, summarize(records, methods, target=target), size)
        picture.draw_without_rendering()
    low, high = picture.axes[0].get_ylim()
    assert (low <= target <= high) == seen
    assert low > 0.1
    assert picture.axes[0].get_position().height > 0.2


def test_the_title_says_curves_like():
    assert "CURVES-like" in drawn("three").get_suptitle()


@pytest.mark.parametrize("name", [r"$\nosuch$", "a $ b", "$x$", r"\$"])
def test_a_name_is_no_mathematics(name, tmp_path):
    records = CASES["three"]
    methods = [replace(METHODS[NAMES[0]], label=name), *(METHODS[n] for n in NAMES[1:3])]
    summary = replace(summarize(records, methods), problem=name)
    _, svg = plots.draw(records, methods, summary, tmp_path / "compare")
    assert svg.read_text().count(f"<!-- {name} -->") == 1  # the legend's
    assert f"<!-- {name}: " in svg.read_text()


def test_the_same_records_give_the_same_file(tmp_path):
    first, second = tmp_path / "a", tmp_path / "b"
    for folder in (first, second):
        folder.mkdir()
        write("three", folder)
    for name in ("compare.png", "compare.svg"):
        assert (first / name).read_bytes() == (second / name).read_bytes()


def test_a_missing_matplotlib_is_named_with_the_extra(monkeypatch):
    monkeypatch.setattr(looks.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(looks.MissingExtra, match=r"equilibrate\[paper\]"):
        looks.require_drawing()


def test_matplotlib_is_loaded_only_to_draw():
    code = "import sys; from equilibrate.study import plots; print('matplotlib' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "False"
