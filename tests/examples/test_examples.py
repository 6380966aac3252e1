"""Every example runs, with the real packages, and ends where the plain loop ends."""

import ast
import warnings
from pathlib import Path

import pytest
import torch
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader, DistributedSampler, Subset

from equilibrate import ESGD, math_attention
from examples import accelerate_loop, huggingface_trainer, lightning_module, plain_loop
from examples.problem import BATCH, STEPS, make_data, make_model, result
from examples.tiny_text import LENGTH, make_text
from examples.tiny_text import make_model as make_gpt2
from tests.examples.launching import ROOT, torchrun

# Where only the order of additions differs: some roundings, amplified by forty steps.
ROUNDED = {"rtol": 1e-4, "atol": 1e-5}
EXACT = {"rtol": 0, "atol": 0}


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.stem)
def test_an_example_is_short_and_says_how_to_run_it(path):
    text = path.read_text()
    assert len(text.splitlines()) < 60
    says = ast.get_docstring(ast.parse(text))
    assert says
    assert "__main__" not in text or f"examples.{path.stem}" in says


def _by_closure():
    """The plain loop with torch's closure: the reference where there are no second derivatives."""
    model = make_model()
    optimizer = ESGD(model.parameters(), lr=0.02)
    for x, y in DataLoader(make_data(), BATCH):

        def closure(x=x, y=y):
            optimizer.zero_grad()
            loss = mse_loss(model(x), y)
            loss.backward()
            return loss

        optimizer.step(closure)
    return result(model)


def _on_joined_batches(order):
    """The plain loop on the batches of two ranks at once."""
    model = make_model()
    optimizer = ESGD(model.parameters(), lr=0.02)
    for x, y in DataLoader(Subset(make_data(), list(order)), 2 * BATCH):
        loss = mse_loss(model(x), y)
        optimizer.probe(loss)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return result(model)


def _shuffled_for_two():
    """The order in which Lightning deals out the cases: it shuffles for several ranks."""
    data = make_data()
    mine, yours = (
        list(DistributedSampler(data, num_replicas=2, rank=rank, shuffle=True)) for rank in (0, 1)
    )
    for start in range(0, len(mine), BATCH):
        yield from mine[start : start + BATCH] + yours[start : start + BATCH]


def test_the_plain_loop_learns(capsys):
    plain_loop.main()
    assert float(capsys.readouterr().out.split()[-1]) < 0.02  # the variance of the target is 0.027


@pytest.mark.parametrize("accumulate", [1, 2])
def test_lightning(accumulate):
    found = lightning_module.main(accumulate)
    torch.testing.assert_close(found, plain_loop.main(accumulate), **EXACT)


class Unchanged(lightning_module.Regression):
    """A module that knows nothing of curvature: Lightning hands its closure to step."""

    def training_step(self, batch, index):
        return mse_loss(self.model(batch[0]), batch[1])


def test_lightning_without_a_changed_line_measures_by_differences():
    torch.testing.assert_close(lightning_module.main(module=Unchanged), _by_closure(), **EXACT)


def test_lightning_without_probe_cannot_accumulate():
    with pytest.raises(RuntimeError, match=r"To accumulate .* optimizer\.probe\(loss\)"):
        lightning_module.main(2, module=Unchanged)


def test_lightning_without_probe_may_not_clip_where_it_measures():
    with pytest.raises(RuntimeError, match=r"if not optimizer\.measuring"):
        lightning_module.main(module=Unchanged, gradient_clip_val=1e-3)


class ClippedAtThePoint(Unchanged):
    """What the error says to do."""

    def configure_gradient_clipping(self, optimizer, gradient_clip_val, gradient_clip_algorithm):
        if not optimizer.measuring:
            self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)


def test_lightning_clips_at_the_point_or_with_probe():
    """The two measure the same, up to the error of the differences, about u^(2/3) a product."""
    by_closure = lightning_module.main(module=ClippedAtThePoint, gradient_clip_val=1e-3)
    by_probe = lightning_module.main(gradient_clip_val=1e-3)
    ways = [
        torch.cat([(p - s).flatten() for p, s in zip(end, result(make_model()), strict=True)])
        for end in (by_closure, by_probe)
    ]
    assert (ways[0] - ways[1]).norm() < 1e-2 * ways[1].norm()


class Wrapped(lightning_module.Regression):
    def training_step(self, batch, index):
        loss = mse_loss(self.model(batch[0]), batch[1])
        self.optimizers().probe(loss)
        return loss


def test_lightnings_wrapper_is_refused_by_name():
    with pytest.raises(RuntimeError, match="use_pl_optimizer=False"):
        lightning_module.main(module=Wrapped)


@pytest.mark.parametrize("accumulate", [1, 2])
def test_accelerate(accumulate):
    found = accelerate_loop.main(accumulate)
    torch.testing.assert_close(found, plain_loop.main(accumulate), **EXACT)


def _gpt2_by_hand(batch, accumulate):
    model = make_gpt2()
    optimizer = ESGD(model.parameters(), lr=0.02)
    loader = iter(DataLoader(make_text(), batch))
    items = batch * accumulate * LENGTH  # what the Trainer divides by: all labels, shifted or not
    model.train()
    for _ in range(160 // (batch * accumulate)):
        for _ in range(accumulate):
            with math_attention(optimizer):
                loss = model(**next(loader), num_items_in_batch=items).loss
            optimizer.probe(loss)
            loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # the Trainer's default
        optimizer.step()
        optimizer.zero_grad()
    return result(model)


@pytest.mark.parametrize(("accumulate", "checkpoints"), [(1, False), (2, False), (1, True)])
def test_hugging_face_trainer(accumulate, checkpoints, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = huggingface_trainer.main(
            output_dir=str(tmp_path),
            use_cpu=True,
            disable_tqdm=True,
            per_device_train_batch_size=8,
            gradient_accumulation_steps=accumulate,
            gradient_checkpointing=checkpoints,
        )
    torch.testing.assert_close(result(model), _gpt2_by_hand(8, accumulate), **ROUNDED)


@pytest.mark.distributed
@pytest.mark.xdist_group("ranks")
@pytest.mark.parametrize(
    ("module", "reference"),
    [("examples.torchrun_ddp", plain_loop.main), ("examples.fsdp2", _by_closure)],
)
def test_under_torchrun(module, reference, tmp_path):
    printed = torchrun(2, module, tmp_path)
    assert "last loss" in printed
    found = torch.load(tmp_path / "final.pt", weights_only=True)
    torch.testing.assert_close(found, reference(), **ROUNDED)


@pytest.mark.distributed
@pytest.mark.xdist_group("ranks")
@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("accelerate", lambda: _on_joined_batches(range(STEPS * BATCH))),
        ("lightning", lambda: _on_joined_batches(_shuffled_for_two())),
        ("trainer", lambda: _gpt2_by_hand(16, 1)),
    ],
    ids=["accelerate", "lightning", "trainer"],
)
def test_trainers_on_two_ranks_equal_the_plain_loop_on_joined_batches(name, reference, tmp_path):
    torchrun(2, "tests.examples.on_two_ranks", name, tmp_path)
    first, second = (torch.load(tmp_path / f"final-{r}.pt", weights_only=True) for r in (0, 1))
    torch.testing.assert_close(first, second, **EXACT)
    torch.testing.assert_close(first, reference(), **ROUNDED)


@pytest.mark.distributed
@pytest.mark.xdist_group("ranks")
def test_killed_in_mid_training_and_restarted_by_torchrun(tmp_path):
    """Rank 1 dies by signal 9 in step 25; both start again from the checkpoint of step 20."""
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    for folder in (undisturbed, killed):
        folder.mkdir()
    torchrun(2, "examples.torchrun_ddp", undisturbed)
    torchrun(2, "tests.examples.killed", killed, restarts=1)
    # torchrun may name the other rank, which lost its peer, as the one that failed.
    assert (killed / "dies").exists()
    assert [Path(killed, f"steps-{rank}").read_text() for rank in (0, 1)] == ["20", "20"]
    final = [torch.load(f / "final.pt", weights_only=True) for f in (undisturbed, killed)]
    torch.testing.assert_close(*final, **EXACT)
