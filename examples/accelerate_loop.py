"""Hugging Face Accelerate, with gradient accumulation.

accelerate launch -m examples.accelerate_loop
"""

from accelerate import Accelerator
from torch import Tensor
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader

from equilibrate import ESGD
from examples.problem import BATCH, make_data, make_model, result


def main(accumulate: int = 1) -> list[Tensor]:
    """Train; `accumulate` cuts every batch into so many micro-batches."""
    accelerator = Accelerator(gradient_accumulation_steps=accumulate)
    model = make_model()
    esgd = ESGD(model.parameters(), lr=0.02)
    loader = DataLoader(make_data(), BATCH // accumulate)
    model, optimizer, loader = accelerator.prepare(model, esgd, loader)
    for x, y in loader:
        with accelerator.accumulate(model):
            loss = mse_loss(model(x), y)
            esgd.probe(loss / accumulate)  # as `accelerator.backward` divides it
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
    accelerator.print(f"last loss {loss.item():.4f}")
    return result(accelerator.unwrap_model(model))


if __name__ == "__main__":
    main()
