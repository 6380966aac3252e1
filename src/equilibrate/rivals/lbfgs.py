"""L-BFGS, one direction an update, each with a line search: for problems without noise."""

from collections.abc import Callable, Iterable

import torch
from torch import Tensor

_SCALE = 1e8
_EVALUATIONS = 26  # the line search's own 25, and the one it starts from


class LBFGS(torch.optim.LBFGS):
    """torch's L-BFGS with the strong Wolfe line search, a history of 20, one direction a step.

    A step evaluates the loss and its gradient as often as the search asks for, so it wants a
    closure (`study.alone` gives it one).

    torch leaves a pair (s, y) out of the history where y^T s < 1e-10, however small the loss is,
    and so becomes gradient descent where a fit is nearly perfect. The loss is therefore handed on
    1e8 times larger: nothing else in the method depends on its scale.

    Where it is not told otherwise torch allows a step of one direction a single evaluation, and
    takes it from the line search: one whose first try is too long ends where it began, for good.

    Example:
        >>> x = torch.tensor([3.0, 1.0], requires_grad=True)
        >>> optimizer = LBFGS([x])
        >>> def closure():
        ...     optimizer.zero_grad()
        ...     loss = 50 * x[0] ** 2 + 0.005 * x[1] ** 2
        ...     loss.backward()
        ...     return loss.item()
        >>> for _ in range(10):
        ...     _ = optimizer.step(closure)
        >>> bool(x.abs().max() < 1e-3)
        True
    """

    wants_closure = True

    def __init__(self, params: Iterable[Tensor], lr: float = 1.0) -> None:
        super().__init__(
            params, lr=lr, max_iter=1, max_eval=_EVALUATIONS, history_size=20,
            line_search_fn="strong_wolfe", tolerance_grad=0.0, tolerance_change=0.0,
        )  # fmt: skip

    def step(self, closure: Callable[[], float]) -> float:  # type: ignore[override]
        """Take one direction; return the loss before it."""

        def scaled() -> float:
            loss = closure()
            for group in self.param_groups:
                for parameter in group["params"]:
                    if parameter.grad is not None:
                        parameter.grad.mul_(_SCALE)
            return _SCALE * loss

        return float(super().step(scaled)) / _SCALE  # type: ignore[no-untyped-call]
