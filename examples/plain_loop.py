"""The plain loop, one process: what every other example is held to.

python -m examples.plain_loop
"""

from torch import Tensor
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader

from equilibrate import ESGD
from examples.problem import BATCH, make_data, make_model, result


def main(accumulate: int = 1) -> list[Tensor]:
    """Train; `accumulate` cuts every batch into so many micro-batches."""
    model = make_model()
    optimizer = ESGD(model.parameters(), lr=0.02)
    for x, y in DataLoader(make_data(), BATCH):
        for part, target in zip(x.chunk(accumulate), y.chunk(accumulate), strict=True):
            loss = mse_loss(model(part), target) / accumulate
            optimizer.probe(loss)  # the very loss that is backpropagated
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(f"last loss {loss.item() * accumulate:.4f}")
    return result(model)


if __name__ == "__main__":
    main()
