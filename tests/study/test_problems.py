"""The built-in problems: size, data, labels, and where they start on MNIST."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor

from equilibrate.study import digs3pts, problems
from equilibrate.study import problem as problem_module
from equilibrate.study.autoencoder import cross_entropy, squared_error
from equilibrate.study.problem import Problem
from equilibrate.study.problems import AUTOENCODERS, BUILT_IN, small_curves

PAIRS = [(name, f"{name}-linear") for name in ("mnist", "curves-like", "curves")]
SMALL_PAIRS = [(f"{name}-14", f"{name}-linear-14") for name in ("mnist", "curves-like")]


@pytest.fixture(scope="session")
def folder() -> Path:
    here = Path(__file__).parents[2].parent / "shared" / "data" / "mnist"
    folder = Path(os.environ.get("EQUILIBRATE_DATA") or here)
    if not (folder / "train-images-idx3-ubyte.gz").is_file():
        pytest.skip(f"no MNIST files in {folder}: set EQUILIBRATE_DATA to the folder that has them")
    return folder


@pytest.fixture(scope="session")
def mnist(folder: Path) -> dict[str, Problem]:
    """Both variants; the images are read once."""
    first, second = (BUILT_IN[name](folder) for name in PAIRS[0])
    return {"mnist": first, "mnist-linear": replace(second, data=lambda: first.cases)}


def start(problem: Problem, seed: int) -> tuple[float, float]:
    """Cross-entropy and squared error of a first network on the first 5,000 images."""
    images = problem.cases[0][:5000]
    with torch.no_grad():
        logits = problem.network(seed)(images)
    return problem.loss(logits, images).item(), problem.reported(logits, images).item()


@pytest.mark.parametrize("name", AUTOENCODERS)
def test_parameter_counts_are_those_of_martens(name: str) -> None:
    network = BUILT_IN[name](None).network(0)
    expected = 2_837_314 if name.startswith("mnist") else 842_340
    assert sum(parameter.numel() for parameter in network.parameters()) == expected


@pytest.mark.parametrize("name", AUTOENCODERS)
def test_objective_error_and_batch_are_the_paper_s(name: str) -> None:
    problem = BUILT_IN[name](None)
    assert (problem.loss, problem.reported) == (cross_entropy, squared_error)
    assert problem.batch_size == 200


@pytest.mark.parametrize(("paper", "martens"), PAIRS + SMALL_PAIRS)
def test_the_variants_differ_by_the_sigmoid_of_the_code_alone(paper: str, martens: str) -> None:
    networks = [BUILT_IN[name](None).network(3) for name in (paper, martens)]
    sigmoids = [repr(network).count("Sigmoid") for network in networks]
    assert sigmoids[0] - sigmoids[1] == 1
    for one, other in zip(*(network.parameters() for network in networks), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("name", AUTOENCODERS)
def test_names_say_what_the_images_are(name: str) -> None:
    label = BUILT_IN[name](None).name
    assert label.startswith(("MNIST", "CURVES"))
    assert label.startswith("CURVES-like") == name.startswith("curves-like")
    assert label.endswith(", linear code") == name.endswith("-linear")


def test_names_differ() -> None:
    assert len({make(None).name for make in BUILT_IN.values()}) == len(BUILT_IN)


@pytest.mark.parametrize("name", [name for name in AUTOENCODERS if "like" not in name])
def test_the_folder_is_where_the_data_are_looked_for_and_not_before_they_are_asked_for(
    name: str, tmp_path: Path
) -> None:
    problem = BUILT_IN[name](tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        problem.cases  # noqa: B018


def test_the_generated_images_need_no_folder_and_are_their_own_targets(tmp_path: Path) -> None:
    inputs, targets = BUILT_IN["curves-like"](tmp_path / "nowhere").cases
    assert inputs.shape == (20_000, 784)
    assert targets is inputs
    assert BUILT_IN["curves-like"](None).updates_per_epoch == 100


def test_fingerprints_differ_between_variants(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problems, "_CURVES_LIKE", 200)
    prints = {name: BUILT_IN[name](None).fingerprint for name in PAIRS[1]}
    assert len(set(prints.values())) == 2
    assert BUILT_IN["curves-like"](None).fingerprint == prints["curves-like"]  # and stay
    monkeypatch.setattr(problems, "_CURVES_LIKE", 201)
    assert BUILT_IN["curves-like"](None).fingerprint not in prints.values()


def test_mnist_trains_on_the_60_000_images(mnist: dict[str, Problem]) -> None:
    inputs, targets = mnist["mnist"].cases
    assert inputs.shape == (60_000, 784)
    assert targets is inputs
    assert mnist["mnist"].updates_per_epoch == 300


@pytest.mark.parametrize("name", PAIRS[0])
def test_a_start_on_mnist_in_the_five_sample_range(mnist: dict[str, Problem], name: str) -> None:
    """FINDINGS' own ranges, which five seeds of another generator gave: seed 4 lies in them.

    Others of our seeds do not: see the next test.
    """
    entropy, error = start(mnist[name], seed=4)
    assert 861 <= entropy <= 918
    assert 256 <= error <= 270


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("name", PAIRS[0])
def test_every_start_on_mnist_in_the_measured_spread(
    mnist: dict[str, Problem], name: str, seed: int
) -> None:
    """Over 100 seeds the start is 916 +- 34 and 268 +- 8; every one of the first five seeds lies
    within three of these standard deviations."""
    entropy, error = start(mnist[name], seed)
    assert entropy == pytest.approx(916, abs=3 * 34)
    assert error == pytest.approx(268, abs=3 * 8)


IMPORTS = """
import sys, equilibrate
print([name for name in sys.modules if name.startswith("equilibrate.study")])
import equilibrate.study.problems
print([name for name in ("scipy", "matplotlib") if name in sys.modules])
"""


def test_imports_stay_light() -> None:
    output = subprocess.run([sys.executable, "-c", IMPORTS], capture_output=True, check=True)
    assert output.stdout.split() == [b"[]", b"[]"]


def test_the_original_curves_come_from_their_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Path] = []

    def images(path: Path, split: str) -> Tensor:
        read.append(path)
        return torch.full((400, 784), 0.25 if split == "train" else 0.75)

    monkeypatch.setattr(digs3pts, "_read", images)
    monkeypatch.setattr(digs3pts, "unmet_statistics", lambda *_: [])
    path = tmp_path / "digs3pts_1.mat"
    path.write_bytes(bytes(128))
    inputs, targets = BUILT_IN["curves"](tmp_path).cases
    assert set(read) == {path}
    assert (inputs == 0.25).all()
    assert targets is inputs


@pytest.mark.parametrize("shared", [True, False])
def test_a_shared_tensor_is_hashed_once_and_the_fingerprint_is_the_same(
    shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed: list[int] = []
    content = problem_module.content
    monkeypatch.setattr(problem_module, "content", lambda t: hashed.append(t.numel()) or content(t))
    images = torch.rand(8, 784)
    whole = replace(
        BUILT_IN["curves-like"](None),
        data=lambda: (images, images if shared else images.clone()),
        batch_size=4,
    )
    twin = replace(whole, data=lambda: (images, images.clone()))
    assert whole.fingerprint == twin.fingerprint
    assert hashed.count(images.numel()) == (1 if shared else 2) + 2


def test_the_small_images_are_the_means_of_two_by_two_pixels() -> None:
    whole, small = (BUILT_IN[name](None).cases[0] for name in ("curves-like", "curves-like-14"))
    assert small.shape == (20_000, 196)
    image, halved = whole[7].view(28, 28), small[7].view(14, 14)
    expected = torch.stack([image[a::2, b::2] for a in (0, 1) for b in (0, 1)]).mean(0)
    torch.testing.assert_close(halved, expected)
    first, other = (small_curves(instance).cases[0] for instance in (0, 1))
    assert torch.equal(first, small)
    assert not torch.equal(first, other)
