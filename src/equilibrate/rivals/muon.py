"""Muon as its authors advise: for the hidden matrices, and AdamW for all that is not one.

Jordan et al. 2024; the factor that lets both share one learning rate is that of Liu et al. 2025
(torch's `match_rms_adamw`).
"""

from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.optim import AdamW, Muon, Optimizer


class MuonAdamW(Optimizer):
    """torch's Muon and torch's AdamW as one optimizer with one learning rate.

    Hidden matrices are those of two dimensions, but for the first (it reads the input) and the last
    (it writes the output). No weight decay.

    Example:
        >>> from torch import nn
        >>> network = nn.Sequential(nn.Linear(2, 8), nn.Linear(8, 8), nn.Linear(8, 1))
        >>> optimizer = MuonAdamW(network.parameters(), lr=1e-3)
        >>> [len(group["params"]) for group in optimizer.param_groups]
        [1, 5]
    """

    def __init__(self, params: Iterable[Tensor], lr: float = 1e-3) -> None:
        given = list(params)
        hidden = [p for p in given if p.dim() == 2][1:-1]
        if not hidden:
            raise ValueError("there is no hidden matrix for Muon; train with AdamW alone")
        rest = [p for p in given if not any(p is h for h in hidden)]
        super().__init__([{"params": hidden}, {"params": rest}], {"lr": lr})
        self._parts: list[Optimizer] = [
            Muon(hidden, lr=lr, weight_decay=0.0, adjust_lr_fn="match_rms_adamw"),
            AdamW(rest, lr=lr, weight_decay=0.0),
        ]

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Take a step of each."""
        for part, group in zip(self._parts, self.param_groups, strict=True):
            part.param_groups[0]["lr"] = group["lr"]
            part.step()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of both."""
        return {"parts": [part.state_dict() for part in self._parts]}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take up the state of both."""
        for part, state in zip(self._parts, state_dict["parts"], strict=True):
            part.load_state_dict(state)
