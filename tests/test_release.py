"""A release: what the wheel and the source distribution hold, and that the wheel works alone.

`make release` does the same in empty environments, with every extra; it takes minutes.
"""

import email
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
import torch
import yaml

import equilibrate

ROOT = Path(__file__).parent.parent
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("release")]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The source distribution, and the wheel built from it."""
    folder = tmp_path_factory.mktemp("dist")
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    run = subprocess.run(words, capture_output=True, text=True)
    assert run.returncode == 0, run.stdout + run.stderr
    (wheel,), (source,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, source


def test_the_wheel_holds_every_module_and_nothing_else(built):
    names = set(zipfile.ZipFile(built[0]).namelist())
    package = {name for name in names if not name.split("/")[0].endswith(".dist-info")}
    files = (ROOT / "src" / "equilibrate").rglob("*.py")
    modules = {str(path.relative_to(ROOT / "src")) for path in files}
    assert package == modules | {"equilibrate/py.typed"}
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_metadata_is_complete(built):
    wheel = zipfile.ZipFile(built[0])
    (name,) = (name for name in wheel.namelist() if name.endswith("/METADATA"))
    metadata = email.message_from_string(wheel.read(name).decode())
    assert metadata["Name"] == "equilibrate"
    assert metadata["Version"] == equilibrate.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Description-Content-Type"] == "text/markdown"
    assert "# equilibrate" in metadata.get_payload()
    assert metadata["Requires-Python"] == ">=3.11"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(metadata.get_all("Provides-Extra")) == project["optional-dependencies"].keys()
    plain = [need for need in metadata.get_all("Requires-Dist") if "extra" not in need]
    assert plain == ["torch>=2.11"]
    for field in ("Summary", "Author", "Keywords", "Classifier", "Project-URL"):
        assert metadata[field], field


def test_the_source_distribution_holds_what_the_tests_need(built):
    with tarfile.open(built[1]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if tracked.returncode:
        pytest.skip("not a checkout")
    left_out = (".", "results/")
    wanted = {name for name in tracked.stdout.split() if not name.startswith(left_out)}
    assert wanted <= names, sorted(wanted - names)[:5]


def test_the_quickstart_runs_from_the_wheel_alone(built, tmp_path):
    """With torch from here, and this checkout out of sight."""
    zipfile.ZipFile(built[0]).extractall(tmp_path / "installed")
    blocks = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text(), re.M | re.S)
    packages = Path(torch.__file__).parents[1]
    # Appended to a clean path: no .pth file of the environment leads back to the checkout.
    paths = [str(tmp_path / "installed"), str(packages)]
    check = f"import equilibrate; assert equilibrate.__file__.startswith({paths[0]!r})"
    code = f"import sys; sys.path[:0] = {paths}\n{check}\n{blocks[0]}"
    words = [sys.executable, "-I", "-S", "-c", code]
    run = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr


def test_the_citation_names_this_version_and_the_paper():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == equilibrate.__version__
    assert citation["license"] == "Apache-2.0"
    assert {"message", "title", "authors", "type"} <= citation.keys()
    paper = citation["preferred-citation"]
    assert [author["family-names"] for author in paper["authors"]] == ["Dauphin", "Vries", "Bengio"]
    assert {"type", "title", "year", "conference", "url"} <= paper.keys()
    project = (ROOT / "pyproject.toml").read_text()
    assert f'Paper = "{paper["url"]}"' in project


def test_every_extra_is_tried():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    tried = re.search(r"^for extra in none (.*); do$", (ROOT / ".ci" / "release").read_text(), re.M)
    assert set(tried[1].split()) == project["optional-dependencies"].keys()


def test_groups_of_tests_stay_with_one_worker(request):
    """Two workers that build here at once break each other's files."""
    if "PYTEST_XDIST_WORKER" in os.environ:
        assert request.node.nodeid.endswith("@release")
