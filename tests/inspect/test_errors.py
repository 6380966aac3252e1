"""What cannot be inspected ends with an explanation and status 2, never with a traceback."""

import pytest

from equilibrate.cli import main

TROUBLED = {
    "nothing": "nn.Parameter",
    "frozen": "requires a gradient",
    "nan": "nan",
    "vector": ".mean()",
    "number": "must be one number",
    "linear": "no curvature at all",
    "detached": "detached",
    "once": "no second derivative",
    "shapes": "cannot be computed",
    "infinite": "second derivative is not",
    "absent": "has no 'absent'",
}


@pytest.mark.parametrize(("name", "words"), TROUBLED.items(), ids=TROUBLED.keys())
def test_a_model_that_cannot_be_inspected_is_explained(name, words, tmp_path, capsys):
    path = tmp_path / "report.html"
    status = main(["inspect", f"tests.inspect.problems:{name}", "--quick", "--out", str(path)])
    told = capsys.readouterr().err
    assert status == 2
    assert words in told
    assert "equilibrate inspect: " in told
    assert not path.exists()


def test_an_unknown_name_lists_the_known_ones(capsys):
    assert main(["inspect", "unknown"]) == 2
    assert "curves-like" in capsys.readouterr().err


def test_a_place_that_cannot_be_written_is_named(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "report.html"
    status = main(["inspect", "tests.inspect.problems:small", "--quick", "--out", str(path)])
    assert status == 1
    assert "--out" in capsys.readouterr().err
