"""Hugging Face Trainer on a tiny GPT-2: a mixin that probes the loss it backpropagates.

python -m examples.huggingface_trainer
"""

from contextlib import ExitStack

from torch import Tensor, nn
from transformers import Trainer, TrainingArguments

from equilibrate import ESGD, math_attention
from examples.tiny_text import make_model, make_text


class ProbingMixin:
    """Put before Trainer: class ProbingTrainer(ProbingMixin, Trainer)."""

    def create_accelerator_and_postprocess(self) -> None:
        """Probe right before the backward: the loss is divided as the gradient will be."""
        super().create_accelerator_and_postprocess()
        backward = self.accelerator.backward

        def probe_and_backward(loss: Tensor, **options: object) -> None:
            optimizer = self.optimizer.optimizer  # ESGD inside Accelerate's wrapper
            with math_attention(optimizer):  # here too, for gradient checkpointing
                optimizer.probe(loss)
                backward(loss, **options)

        self.accelerator.backward = probe_and_backward

    def compute_loss_context_manager(self) -> ExitStack:
        """Give attention a second derivative, in the passes that need one."""
        stack = super().compute_loss_context_manager()
        stack.enter_context(math_attention(self.optimizer.optimizer))
        return stack


class ProbingTrainer(ProbingMixin, Trainer):
    """The Trainer, with curvature."""


def main(**options: object) -> nn.Module:
    """Train one epoch, in order; `options` are more TrainingArguments."""
    model = make_model()
    settings = {
        "num_train_epochs": 1,
        "lr_scheduler_type": "constant",
        "train_sampling_strategy": "sequential",
        "save_strategy": "no",
        "report_to": "none",
    }
    arguments = TrainingArguments(**settings | options)
    optimizers = (ESGD(model.parameters(), lr=0.02), None)
    ProbingTrainer(model, arguments, train_dataset=make_text(), optimizers=optimizers).train()
    return model


if __name__ == "__main__":
    main()
