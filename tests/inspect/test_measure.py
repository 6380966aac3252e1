"""The inspection's numbers against dense Hessians of every batch."""

import math
from dataclasses import replace

import pytest
import torch

from equilibrate import cosine_distance, hessian
from equilibrate.exact import transformed
from equilibrate.inspect.advice import MOMENTA, rate_limit, suggestions
from equilibrate.inspect.findings import DAMPING, QUICK, Budget
from equilibrate.inspect.measure import inspect, work
from equilibrate.inspect.report import write
from equilibrate.inspect.subject import Subject
from equilibrate.monitor.lanczos import Ritz
from equilibrate.monitor.spectrum import Spectrum
from equilibrate.study.progress import Progress
from tests.inspect import problems

BUDGET = Budget(batches=3, probes=200, steps=60, starts=2)
CPU = torch.device("cpu")


def _inspected(problem, budget, seed=0):
    subject = Subject(problem, seed=seed, device=CPU, batches=budget.batches)
    progress = Progress("test", budget.products, stream=None)
    return inspect(subject, budget, quick=False, progress=progress), subject


@pytest.fixture(scope="module")
def found():
    return _inspected(problems.small, BUDGET)[0]


@pytest.fixture(scope="module")
def dense():
    """Of every batch: the Hessian and the gradient."""
    return _dense(Subject(problems.small, seed=0, device=CPU, batches=3))


def _dense(subject):
    matrices, gradients = [], []
    for batch in range(subject.batches):
        loss = subject.loss(batch)
        matrices.append(hessian(loss, subject.parameters))
        parts = torch.autograd.grad(subject.loss(batch), subject.parameters)
        gradients.append(torch.cat([g.flatten() for g in parts]))
    return torch.stack(matrices), torch.stack(gradients), [p.numel() for p in subject.parameters]


def _diagonals(dense):
    matrices, gradients, _ = dense
    return {
        "equilibration": matrices.square().sum(-1).mean(0).sqrt(),
        "jacobi": matrices.diagonal(dim1=-2, dim2=-1).mean(0).abs(),
        "gradient": gradients.square().mean(0).sqrt(),
    }


def _damped(diagonal, sizes):
    return torch.cat([d + DAMPING * d.mean() for d in diagonal.split(sizes)])


def test_the_spectrum_of_a_small_model_is_exact(found, dense):
    first = dense[0][0]
    values = torch.linalg.eigvalsh((first + first.mT) / 2)
    assert found.size == len(values)
    torch.testing.assert_close(found.spectra["none"].ritz[0].nodes, values)
    sizes = values.abs().sort().values
    middle = found.spectra["none"].condition(0.5).value
    assert middle == pytest.approx(float(sizes[-1] / sizes[len(sizes) // 2 - 1]), rel=1e-6)


# 600 probes know a row norm to 0.71 / sqrt(600) = 3%; the squared gradient is exact.
@pytest.mark.parametrize(("name", "tolerance"), [("equilibration", 0.06), ("gradient", 1e-5)])
def test_the_spectrum_after_preconditioning(found, dense, name, tolerance):
    divisor = _damped(_diagonals(dense)[name], dense[2])
    values = torch.linalg.eigvalsh(transformed(dense[0][0], divisor))
    assert found.spectra[name].largest.value == pytest.approx(float(values[-1]), rel=tolerance)
    assert found.spectra[name].smallest.value == pytest.approx(float(values[0]), rel=tolerance)
    assert rate_limit(found, name).value == pytest.approx(2 / float(values[-1]), rel=tolerance)


def test_distances_of_some_batches_hold_those_of_all():
    """Eighty batches make the exact diagonals, twenty of them are inspected."""
    everything = _dense(Subject(problems.many, seed=0, device=CPU, batches=80))
    exact = _diagonals(everything)
    found, _ = _inspected(problems.many, Budget(batches=20, probes=20, steps=20, starts=1))
    for pair, interval in found.distances.items():
        one, other = pair.split("_")
        assert float(cosine_distance(exact[one], exact[other])) in interval, pair
        assert interval.high - interval.low < 0.2


def test_the_layers_quantiles(found, dense):
    exact = _diagonals(dense)
    for i, layer in enumerate(found.layers):
        for name, tolerance in (("equilibration", 0.15), ("gradient", 1e-6)):
            own = exact[name].split(dense[2])[i]
            for q, quantile in (("q05", 0.05), ("median", 0.5), ("q95", 0.95)):
                expected = float(own.quantile(quantile))
                assert layer.quantiles[name][q] == pytest.approx(expected, rel=tolerance)
        assert layer.unseen == 0


def test_the_error_between_batches(found, dense):
    """Row norms of three batches: their relative scatter, in D."""
    squares = dense[0].square().sum(-1)
    scatter = (squares.var(0) / squares.mean(0).square()).mean().sqrt() / 2
    assert found.batch_error == pytest.approx(float(scatter), rel=0.15)


def test_the_error_of_one_probe(found, dense):
    """For signs, within a batch: Var(h^2) = 2 (r^4 - sum H_ij^4), over the batches' own r^4."""
    rows = dense[0].square().sum(-1)
    within = (2 * (rows.square() - dense[0].pow(4).sum(-1))).mean(0)
    level = rows.mean(0).square()
    one = ((within / level).sum() / (rows.square().mean(0) / level).sum()).sqrt() / 2
    said = [layer.one_probe_error for layer in found.layers]
    sizes = torch.tensor(dense[2], dtype=torch.float64)
    mean = math.sqrt(float((torch.tensor(said).square() * sizes).sum() / sizes.sum()))
    assert mean == pytest.approx(float(one), rel=0.15)


def _own(matrix, sizes):
    """The diagonal blocks of a matrix."""
    places = torch.arange(len(matrix)).split(sizes)
    return [matrix[own][:, own] for own in places]


def _values(matrix):
    return torch.linalg.eigvalsh((matrix + matrix.mT) / 2).double()


def _over(values, quantile):
    sizes = values.abs().sort().values
    return float(sizes[-1] / sizes[math.ceil(quantile * len(sizes)) - 1])


def test_the_layers_own_spectra(found, dense):
    """Before exactly; after, the divisors are those of 600 probes, which are known to 3%.

    Three deviations of them move an eigenvalue by 9% at most (Ostrowski), a quotient by 18%.
    """
    divisors = _damped(_diagonals(dense)["equilibration"], dense[2]).split(dense[2])
    for layer, block, divisor in zip(found.layers, _own(dense[0][0], dense[2]), divisors,
                                     strict=True):  # fmt: skip
        cases = (("none", block, 1e-9), ("equilibration", transformed(block, divisor), 0.09))
        for name, matrix, tolerance in cases:
            values, said = _values(matrix), layer.blocks[name]
            exact = (float(values[-1]), _over(values, 0.5), _over(values, 0.9))
            told = (said.largest, said.over_median, said.over_top_tenth)
            for number, interval, factor in zip(exact, told, (1, 2, 2), strict=True):
                slack = factor * tolerance
                assert interval.low * (1 - slack) <= number <= interval.high * (1 + slack)


def test_a_budget_of_layers_goes_to_the_most_curved():
    budget = Budget(batches=2, probes=60, steps=4, starts=1, layers=2)
    found, subject = _inspected(problems.wide, budget)
    squares = torch.stack([
        hessian(subject.loss(b), subject.parameters).double().square().sum(-1) for b in range(2)
    ]).mean(0)  # fmt: skip
    sums = [float(x.sum()) for x in squares.split([p.numel() for p in subject.parameters])]
    expected = sorted(range(len(sums)), key=lambda i: -sums[i])[:2]
    assert [i for i, layer in enumerate(found.layers) if layer.blocks] == sorted(expected)
    matrix = hessian(subject.loss(0), subject.parameters).double()
    blocks = _own(matrix, [p.numel() for p in subject.parameters])
    for i in expected:  # in float32, with dropout
        assert float(_values(blocks[i])[-1]) in found.layers[i].blocks["none"].largest


def test_quick_intervals_hold_the_dense_answer_too():
    """A model too large for the quick budget to measure exactly, with dropout, in float32."""
    found, subject = _inspected(problems.wide, QUICK)
    assert not found.spectra["none"].complete
    matrix = hessian(subject.loss(0), subject.parameters).double()
    values = torch.linalg.eigvalsh((matrix + matrix.mT) / 2)
    spectrum = found.spectra["none"]
    assert float(values[-1]) in spectrum.largest
    assert float(values[0]) in spectrum.smallest
    sizes = values.abs().sort().values
    assert float(sizes[-1] / sizes[len(sizes) // 2 - 1]) in spectrum.condition(0.5)


def test_one_batch_alone_leaves_the_noise_between_batches_open():
    found, _ = _inspected(problems.one_batch, QUICK)
    assert len(found.losses) == 1
    assert math.isnan(found.batch_error)
    assert all(math.isnan(layer.batch_error) for layer in found.layers)


def test_the_same_seed_gives_the_same_numbers_and_leaves_torch_s_generator():
    before = torch.get_rng_state()
    first, second = (_inspected(problems.wide, QUICK)[0] for _ in range(2))
    assert torch.equal(before, torch.get_rng_state())
    assert first.distances == second.distances
    assert first.layers == second.layers
    assert first.losses == second.losses
    assert _inspected(problems.wide, QUICK, seed=1)[0].losses != first.losses


def test_suggestions_follow_the_numbers(found):
    rate, moving, damping, warmup = suggestions(found)
    spectrum = found.spectra["equilibration"]
    edge = 2 / max(spectrum.largest.value, -spectrum.smallest.value)
    assert rate.value == f"{edge / 3:.2g}, search {edge / 9:.2g} to {edge:.2g}"
    assert f"estimated to turn unstable at 2 over the largest size, {edge:.2g}," in rate.reason
    nesterov = edge * 1.9 / 2.8
    low, high = f"{nesterov / 27:.2g}", f"{nesterov / 3:.2g}"
    assert moving.value == f"{high}, search {low} to {high} first"  # downwards
    assert f"Nesterov's, {nesterov:.2g}; that of heavy-ball is {edge * 1.9:.2g}," in moving.reason
    assert damping.value.startswith("0.01")
    one = found.one_probe_error
    count = int(warmup.value.split()[0])
    assert one / math.sqrt(count) <= 0.15 < one / math.sqrt(count - 1)


class Averaged(torch.optim.Optimizer):
    """Steps along an average of the gradients, as Adam does; nothing is divided."""

    def __init__(self, params, lr, betas):
        super().__init__(params, {"lr": lr, "betas": betas})
        self.mean = 0.0

    def step(self):
        (group,) = self.param_groups
        (weight,) = group["params"]
        self.mean = group["betas"][0] * self.mean + (1 - group["betas"][0]) * weight.grad
        weight.data.sub_(group["lr"] * self.mean)


@pytest.mark.parametrize(("factor", "shrinks"), [(0.99, True), (1.01, False)])
@pytest.mark.parametrize("momentum", MOMENTA)
def test_descent_turns_at_the_rate_it_is_told(found, momentum, factor, shrinks):
    """Along the largest curvature: below the limit steps shrink, above it they grow.

    A factor of 1 - s in the rate moves the largest root from 1 by about s times a tenth at least
    (heavy-ball's two roots multiply to 0.9): 1e-3 a step, e^2 after 2000, at the turn itself 1.
    """
    curvature = found.spectra["none"].largest.value
    weight = torch.ones(1, dtype=torch.float64, requires_grad=True)
    rate = factor * rate_limit(found, "none", momentum).value
    kind = Averaged if "averaged" in momentum else torch.optim.SGD
    optimizer = kind([weight], lr=rate, **MOMENTA[momentum])
    for _ in range(2000):
        weight.grad = curvature * weight.detach()
        optimizer.step()
    assert (float(weight.detach().abs()) < 0.2) == shrinks
    assert (float(weight.detach().abs()) > 5) != shrinks


def test_a_rate_beyond_which_nothing_grows_is_infinite(found):
    downwards = Ritz(torch.tensor([-2.0, -1.0]), torch.tensor([0.5, 0.5]), exact=True)
    spectra = {**found.spectra, "none": Spectrum((downwards,), 2)}
    assert math.isinf(rate_limit(replace(found, spectra=spectra), "none").value)


@pytest.mark.parametrize("name", ["small", "wide", "awkward"])
def test_the_progress_bar_is_full_when_the_work_is_done_and_not_before(name):
    """What is told by products comes to the whole but for recursions that end early, in `small`."""
    subject = Subject(getattr(problems, name), seed=0, device=CPU, batches=QUICK.batches)
    total = work(subject, QUICK)
    progress = Progress("test", 2 * total, stream=None)
    inspect(subject, QUICK, quick=True, progress=progress)
    assert 0.9 * total <= progress.done <= total * (1 + 1e-9)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_finds_the_same():
    """In double precision, where only the order of sums differs."""
    found = []
    for device in ("cpu", "cuda"):
        subject = Subject(problems.small, seed=0, device=torch.device(device), batches=3)
        progress = Progress("test", 1.0, stream=None)
        found.append(inspect(subject, QUICK, quick=True, progress=progress))
    for name, spectrum in found[0].spectra.items():
        other = found[1].spectra[name].largest.value
        assert spectrum.largest.value == pytest.approx(other, rel=1e-6)
    for first, second in zip(found[0].layers, found[1].layers, strict=True):
        assert first.relative_error == pytest.approx(second.relative_error, rel=1e-6)
        for name, block in first.blocks.items():
            other = second.blocks[name].largest.value
            assert block.largest.value == pytest.approx(other, rel=1e-6)


def test_awkward_parameters_are_inspected(tmp_path):
    found, _ = _inspected(problems.awkward, QUICK)
    layers = {layer.name: layer for layer in found.layers}
    assert list(layers) == ["scalar", "empty", "unused", "table.weight", "inner.weight",
                            "inner.bias"]  # fmt: skip
    assert layers["unused"].unseen == 1
    assert layers["table.weight"].unseen == pytest.approx(0.4)  # four tokens never met
    path = write(found, tmp_path / "report.html", command="test")
    assert path.read_text().count("<svg") == 10
