"""`inspect_model`: a model at hand is measured where it stands, and left as it was."""

import copy

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from equilibrate.inspect import InspectError, inspect_model, verdict
from equilibrate.inspect.findings import QUICK
from equilibrate.inspect.measure import inspect
from equilibrate.inspect.subject import Subject
from equilibrate.study.problem import ProblemError
from equilibrate.study.progress import Progress
from tests.inspect import problems

DATA = problems.small.cases
LOSS = nn.functional.mse_loss


def test_it_finds_what_the_command_finds_of_the_same_network():
    model = problems.small.network(0)
    found = inspect_model(model, DATA, LOSS, batch_size=20, quick=True)
    subject = Subject(problems.small, seed=0, device=torch.device("cpu"), batches=QUICK.batches)
    told = inspect(subject, QUICK, quick=True, progress=Progress("test", 1.0, stream=None))
    assert found.losses == told.losses
    assert found.layers == told.layers
    assert verdict(found) == verdict(told).replace("without --quick", "with quick=False")


def test_it_measures_the_weights_as_they_are():
    model = problems.small.network(0)
    before = inspect_model(model, DATA, LOSS, batch_size=60, quick=True)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3)
    after = inspect_model(model, DATA, LOSS, batch_size=60, quick=True)
    loss = float(LOSS(model(DATA[0]), DATA[1]).detach())
    assert after.losses == pytest.approx([loss], rel=1e-12)  # one batch of all, in another order
    assert after.losses != before.losses


class _Normed(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Dropout(0.5),
                                    nn.Linear(8, 2))  # fmt: skip

    def forward(self, x):
        return self.layers(x)


@pytest.mark.parametrize("training", [True, False])
def test_it_leaves_the_model_as_it_was(training):
    model = _Normed().double().train(training)
    LOSS(model(DATA[0]), DATA[1]).backward()
    state = copy.deepcopy(model.state_dict())
    gradients = [p.grad.clone() for p in model.parameters()]
    before = torch.get_rng_state()
    found = inspect_model(model, DATA, LOSS, batch_size=20, quick=True)
    assert found.size == sum(p.numel() for p in model.parameters())
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training == training
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name]), name
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        assert torch.equal(parameter.grad, gradient)


class _Keeper(nn.Linear):
    """Keeps its last output, with the graph behind it: torch does not copy such a tensor."""

    def forward(self, x):
        self.last = super().forward(x)
        return self.last


def test_a_model_that_torch_cannot_copy_is_explained():
    model = _Keeper(4, 2).double()
    model(DATA[0])
    with pytest.raises(InspectError, match=r"cannot be copied.* Keep output\.detach\(\)"):
        inspect_model(model, DATA, LOSS, quick=True)


def test_dropout_is_off_where_the_model_is_in_evaluation():
    model = _Normed().double().eval()
    found = inspect_model(model, DATA, LOSS, batch_size=60, quick=True)
    assert found.losses == pytest.approx([float(LOSS(model(DATA[0]), DATA[1]).detach())])


def test_a_report_is_written_where_asked_with_the_verdict_at_its_head(tmp_path):
    path = tmp_path / "deep" / "mine.html"
    found = inspect_model(problems.small.network(0), DATA, LOSS, quick=True, path=path, name="mine")
    text = path.read_text()
    assert "<h1>Curvature of mine</h1>" in text
    assert text.index("</h1>") < text.index(verdict(found).split(":")[0]) < text.index("Suggested")
    assert found.batch_size == 60  # all, where there are fewer than 200


@pytest.mark.parametrize("place", ["", "file/report.html"])
def test_a_place_that_cannot_be_written_is_told_before_measuring(place, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    path = tmp_path / place
    with pytest.raises(OSError, match=r"report|folder|directory") as error:
        inspect_model(problems.small.network(0), DATA, LOSS, quick=True, path=path)
    assert str(tmp_path) in str(error.value)
    assert capsys.readouterr().err == ""  # no progress
    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_a_report_is_written_where_a_link_leads(tmp_path):
    (tmp_path / "link.html").symlink_to("real.html")
    path = tmp_path / "link.html"
    inspect_model(problems.small.network(0), DATA, LOSS, quick=True, path=path)
    assert path.is_symlink()
    assert (tmp_path / "real.html").stat().st_size > 0


def test_a_report_without_a_name_takes_that_of_the_class():
    assert inspect_model(_Normed().double(), DATA, LOSS, quick=True).name == "_Normed"


def test_no_name_of_the_user_s_becomes_markup(tmp_path):
    """The report's own name and those of layers, in tables, plots and their titles."""
    hostile = '<img src=x onerror="alert(1)">&'
    model = nn.Sequential()
    model.add_module(hostile.replace(".", ""), nn.Linear(4, 2))
    path = tmp_path / "report.html"
    inspect_model(model.double(), DATA, LOSS, quick=True, path=path, name=hostile)
    text = path.read_text()
    assert "<img" not in text
    assert 'onerror="' not in text
    assert text.count("&lt;img src=x onerror=&quot;alert(1)&quot;&gt;&amp;") > 5


SET = TensorDataset(*DATA)
MISTAKES = {
    "a loader": ({"data": DataLoader(SET)}, ProblemError, "`batches = list(loader)`"),
    "a dataset": ({"data": SET}, ProblemError, "DataLoader(dataset, batch_size"),
    "a function": ({"model": problems.small.model}, ProblemError, "give the network itself"),
    "unequal data": (
        {"data": (DATA[0], DATA[1][:9])}, ProblemError, "holds 60 inputs and 9 targets",
    ),
    "no case": ({"data": (DATA[0][:0], DATA[1][:0])}, ProblemError, "holds no case"),
    "one tensor": ({"data": DATA[0]}, ProblemError, "data is a Tensor; it must be (inputs"),
    "too large a batch": ({"batch_size": 61}, ProblemError, "between 1 and 60"),
    "no batch": ({"batch_size": 0}, ProblemError, "between 1 and 60"),
    "a class": ({"loss": nn.MSELoss}, ProblemError, "loss=MSELoss()"),
    "a loss at hand": ({"loss": torch.tensor(1.0)}, ProblemError, "it must be a function, loss("),
    "no parameters": ({"model": nn.Flatten()}, InspectError, "no parameters"),
    "frozen": (
        {"model": nn.Linear(4, 2).double().requires_grad_(False)}, InspectError, "nn.Parameter",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_has_another_form_is_told(mistake):
    changed, kind, words = MISTAKES[mistake]
    given = {"model": problems.small.network(0), "data": DATA, "loss": LOSS, **changed}
    with pytest.raises(kind) as error:
        inspect_model(**given)
    assert words in str(error.value)
    assert "\n" not in str(error.value)
