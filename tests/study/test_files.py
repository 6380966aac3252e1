"""Files are put in place whole: through links, and never over what is no ordinary file."""

import os
import stat

import pytest

from equilibrate.study.files import StudyError, write_whole

# Links from their own folder to the file that is meant.
LINKS = {
    "a link": ["../real/file"],
    "a link to a link": ["second", "../real/file"],
    "a link to what is not there yet": ["../real/new"],
    "a link to a folder that is not there yet": ["../real/new/file"],
}


@pytest.mark.parametrize("name", LINKS)
def test_a_link_stays_and_what_it_leads_to_is_written(name, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "file").write_text("old")
    (tmp_path / "links").mkdir()
    for own, target in zip(("first", "second"), LINKS[name], strict=False):
        (tmp_path / "links" / own).symlink_to(target)
    write_whole(tmp_path / "links" / "first", b"new")
    assert all(path.is_symlink() for path in (tmp_path / "links").iterdir())
    assert (tmp_path / "links" / LINKS[name][-1]).read_text() == "new"
    assert not list(tmp_path.rglob("*.partial"))


@pytest.mark.parametrize("linked", [False, True])
def test_a_pipe_is_refused_and_left_as_it_is(linked, tmp_path):
    pipe, path = tmp_path / "pipe", tmp_path / ("link" if linked else "pipe")
    os.mkfifo(pipe)
    if linked:
        path.symlink_to(pipe)
    with pytest.raises(StudyError, match="no ordinary file"):
        write_whole(path, b"new")
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert {each.name for each in tmp_path.iterdir()} == {"pipe", path.name}
