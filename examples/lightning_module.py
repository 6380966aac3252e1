"""Lightning, automatic optimization, with or without accumulate_grad_batches.

python -m examples.lightning_module
"""

import lightning
from torch import Tensor
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader

from equilibrate import ESGD
from examples.problem import BATCH, make_data, make_model, result


class Regression(lightning.LightningModule):
    """A module with one line more in its training step."""

    def __init__(self) -> None:
        super().__init__()
        self.model = make_model()

    def training_step(self, batch: tuple[Tensor, Tensor], index: int) -> Tensor:
        """Return the loss; Lightning divides it by accumulate_grad_batches before its backward."""
        loss = mse_loss(self.model(batch[0]), batch[1])
        optimizer = self.optimizers(use_pl_optimizer=False)  # the optimizer itself, not a wrapper
        optimizer.probe(loss / self.trainer.accumulate_grad_batches)
        return loss

    def configure_optimizers(self) -> ESGD:
        """Return ESGD, as any optimizer."""
        return ESGD(self.parameters(), lr=0.02)


def main(
    accumulate: int = 1, module: type[Regression] = Regression, **options: object
) -> list[Tensor]:
    """Train; `accumulate` cuts every batch into so many micro-batches, `options` are Trainer's."""
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = lightning.Trainer(
        accelerator="cpu",
        max_epochs=1,
        accumulate_grad_batches=accumulate,
        enable_checkpointing=False,
        **quiet | options,
    )
    regression = module()
    trainer.fit(regression, DataLoader(make_data(), BATCH // accumulate))
    return result(regression)


if __name__ == "__main__":
    main()
