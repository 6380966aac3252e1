"""Stopped and resumed by the trainers' own checkpoints: as if never stopped."""

import lightning
import pytest
import torch
from torch.utils.data import DataLoader
from transformers import TrainingArguments

from equilibrate import ESGD
from examples.huggingface_trainer import ProbingTrainer
from examples.lightning_module import Regression
from examples.problem import BATCH, make_data, result
from examples.tiny_text import make_model, make_text

EXACT = {"rtol": 0, "atol": 0}


def _lightning(folder, epochs, resume=None):
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=epochs,
        default_root_dir=folder,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    module = Regression()
    trainer.fit(module, DataLoader(make_data(), BATCH), ckpt_path=resume)
    trainer.save_checkpoint(folder / "last.ckpt")
    return result(module)


def test_lightning_goes_on_from_its_checkpoint(tmp_path):
    straight = _lightning(tmp_path / "straight", 2)
    _lightning(tmp_path, 1)
    found = _lightning(tmp_path / "resumed", 2, resume=tmp_path / "last.ckpt")
    torch.testing.assert_close(found, straight, **EXACT)


def _trainer(folder, steps, resume=None):
    model = make_model()
    arguments = TrainingArguments(
        output_dir=str(folder),
        max_steps=steps,
        save_steps=7,
        use_cpu=True,
        disable_tqdm=True,
        report_to="none",
        lr_scheduler_type="constant",
    )
    optimizers = (ESGD(model.parameters(), lr=0.02, probe_every=4), None)
    trainer = ProbingTrainer(model, arguments, train_dataset=make_text(), optimizers=optimizers)
    trainer.train(resume_from_checkpoint=resume)
    return result(model)


@pytest.mark.filterwarnings("ignore")
def test_the_trainer_goes_on_from_its_checkpoint(tmp_path):
    straight = _trainer(tmp_path / "straight", 14)
    _trainer(tmp_path / "stopped", 7)
    found = _trainer(tmp_path / "resumed", 14, resume=str(tmp_path / "stopped" / "checkpoint-7"))
    torch.testing.assert_close(found, straight, **EXACT)
