"""Row-and-column equilibration online: Bradley's iteration (2011) on the batches of training.

The paper finds it "more natural" than row equilibration, and says that it did not work very well
online (section 4, claim S15). The aim is a diagonal D such that D^-1/2 H D^-1/2, the Hessian of the
transformed function, has unit rows and columns: sum_j H_ij^2 / (d_i d_j) = 1 for every i, or

    d_i = sum_j H_ij^2 / d_j = E[(H D^-1/2 v)_i^2],        E[v v^T] = I.

What a step divides by: descent on the transformed function is descent with D^-1 on the original one
(equations 1 to 4), so the gradient is divided by d itself. No root is taken: d, a square of H over
a d, has the unit of H already, where ESGD's (Hv)^2 has that of H^2.
"""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.optimizer import ParamsT

from equilibrate.curvature import Distribution, LossHessian, draw


class RowColumnSGD(Optimizer):
    """SGD whose gradient is divided by the row-and-column equilibration of the Hessian.

    Every `probe_every` steps d <- d + ((H D^-1/2 v)^2 - d) / weight, the weight a count of probes
    that forgets as ESGD's does. The start needs more care than ESGD's, for d stands on both sides:
    on the first loss `warmup_rounds` rounds d <- sqrt(d E[(H D^-1/2 v)^2]), each with
    `warmup_probes` vectors, halve its error each (`exact.row_column_stochastic`).

    D = d + damping * mean of d over the tensor, both where it scales v and where it divides the
    gradient: an element that saw hardly any curvature must not swamp the product. An element that
    saw none takes the mean for its own; a tensor that saw none does not move.

    Made for one experiment: one group of parameters, no momentum. Call `probe(loss)` before
    `loss.backward()` in every iteration.

    Example:
        >>> x = torch.tensor([3.0, 1.0], requires_grad=True)
        >>> optimizer = RowColumnSGD([x], lr=1.0, damping=0.0)
        >>> loss = 50 * x[0] ** 2 + 0.005 * x[1] ** 2
        >>> optimizer.probe(loss)
        >>> loss.backward()
        >>> optimizer.step()  # of a diagonal H: Newton's
        >>> bool(x.abs().max() < 1e-4)
        True
    """

    def __init__(
        self,
        params: ParamsT,
        lr: float = 0.02,
        *,
        damping: float = 1e-2,
        decay: float | None = 0.998,
        probe_every: int = 20,
        warmup_probes: int = 20,
        warmup_rounds: int = 6,
        distribution: Distribution = "rademacher",
        seed: int = 0,
    ) -> None:
        settings = {
            "lr": lr, "damping": damping, "decay": decay, "probe_every": probe_every,
            "warmup_probes": warmup_probes, "warmup_rounds": warmup_rounds,
            "distribution": distribution, "seed": seed,
        }  # fmt: skip
        counts = {"probe_index": 0, "weight": 0.0, "steps_since_probe": 0}
        super().__init__(params, {**settings, **counts})
        if len(self.param_groups) > 1:
            raise ValueError("RowColumnSGD takes one group of parameters")

    @torch.no_grad()
    def probe(self, loss: Tensor) -> None:
        """Measure H D^-1/2 v on a live loss where that is due; the warm-up on the first."""
        group = self.param_groups[0]
        if group["weight"] and group["steps_since_probe"] < group["probe_every"]:
            return
        hessian = LossHessian(loss, group["params"])
        if group["weight"]:
            self._average(hessian)
        else:
            self._approach(hessian)
        group["steps_since_probe"] = 0

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Divide the gradients by D and descend."""
        group = self.param_groups[0]
        moving = [p for p in group["params"] if p.grad is not None]
        inverses = [self.state[p]["inverse"] for p in moving]
        with torch.no_grad():
            torch._foreach_addcmul_(
                moving, [p.grad for p in moving], inverses, value=-float(group["lr"])
            )
        group["steps_since_probe"] += 1

    def diagonal(self) -> list[Tensor]:
        """Return d, undamped, one tensor for each parameter."""
        return [self.state[p]["diagonal"] for p in self.param_groups[0]["params"]]

    def _approach(self, hessian: LossHessian) -> None:
        group = self.param_groups[0]
        count = group["warmup_probes"]
        self._take([torch.ones_like(p) for p in group["params"]], damping=0.0)
        for number in range(group["warmup_rounds"]):
            samples = [self._squares(hessian) for _ in range(count)]
            means = [sum(parts[1:], parts[0]) / count for parts in zip(*samples, strict=True)]
            if number:  # the first round's unit is that of H^2: any start serves
                pairs = zip(self.diagonal(), means, strict=True)
                means = [d.sqrt() * m.sqrt() for d, m in pairs]
            self._take(means, group["damping"])
        group["weight"] = float(count)

    def _average(self, hessian: LossHessian) -> None:
        group = self.param_groups[0]
        squares = self._squares(hessian)
        if not all(bool(s.isfinite().all()) for s in squares):
            return  # as ESGD does: one bad product is dropped
        forgetting = (1.0 if group["decay"] is None else group["decay"]) ** group["probe_every"]
        group["weight"] = group["weight"] * forgetting + 1
        pairs = zip(self.diagonal(), squares, strict=True)
        self._take([d.lerp(s, 1 / group["weight"]) for d, s in pairs], group["damping"])

    def _squares(self, hessian: LossHessian) -> list[Tensor]:
        """Return one sample of (H D^-1/2 v)^2."""
        group = self.param_groups[0]
        parameters = group["params"]
        vectors = draw(
            group["distribution"], parameters, seed=group["seed"], probe=group["probe_index"]
        )
        group["probe_index"] += 1
        pairs = zip(vectors, parameters, strict=True)
        scaled = [v * self.state[p]["inverse"].sqrt() for v, p in pairs]
        return [product.square() for product in hessian(scaled)]

    def _take(self, diagonals: Sequence[Tensor], damping: float) -> None:
        for parameter, d in zip(self.param_groups[0]["params"], diagonals, strict=True):
            self.state[parameter] = {"diagonal": d, "inverse": inverse(d, damping)}


def inverse(diagonal: Tensor, damping: float) -> Tensor:
    """Return D^-1, D = d + damping * mean(d), the mean in place of a d of zero.

    Example:
        >>> inverse(torch.tensor([1.0, 0.0, 3.0]), damping=0.0)
        tensor([1.0000, 0.5000, 0.3333])
    """
    mean = diagonal.sum() / (diagonal != 0).sum().clamp(min=1)
    damped = torch.where(diagonal == 0, mean, diagonal) + damping * mean
    return torch.where(damped == 0, 0.0, 1 / damped)
