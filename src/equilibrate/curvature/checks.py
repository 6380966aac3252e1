"""What a loss and its parameters must be to have a Hessian, with errors that say what to do."""

from collections.abc import Iterable
from typing import Any

from torch import Tensor
from torch.nn import Module


def check_loss(loss: Tensor) -> None:
    """Raise for what cannot be a live scalar loss, before anything is computed.

    Example:
        >>> import torch
        >>> check_loss(torch.ones((), requires_grad=True))
        >>> check_loss(torch.ones(3, requires_grad=True))
        Traceback (most recent call last):
            ...
        ValueError: The loss must be a scalar, got shape (3,). Reduce it: loss.mean().
    """
    if not isinstance(loss, Tensor):
        hint = ", not loss.item()" if isinstance(loss, float | int) else ""
        raise TypeError(
            f"The loss must be a tensor, got {type(loss).__name__}. Pass the loss itself{hint}."
        )
    if loss.numel() != 1:
        raise ValueError(
            f"The loss must be a scalar, got shape {tuple(loss.shape)}. Reduce it: loss.mean()."
        )
    if loss.is_complex():
        raise ValueError("The loss must be real, got a complex one. Take .real or .abs() of it.")
    if not loss.requires_grad:
        raise ValueError(
            "The loss must be live, but this one is detached from the parameters. Compute it "
            "outside torch.no_grad() and pass the tensor itself, not loss.item() or "
            "loss.detach(). Frozen parameters need requires_grad_()."
        )


def refuse_model(parameters: Any) -> None:
    """Raise for a model, or a method of it, in the place of its parameters.

    Example:
        >>> refuse_model(Module())
        Traceback (most recent call last):
            ...
        TypeError: Pass the parameters, not the model: model.parameters().
    """
    if isinstance(parameters, Module):
        raise TypeError("Pass the parameters, not the model: model.parameters().")
    if callable(parameters):
        raise TypeError("Pass the parameters, not the method: model.parameters(), called.")


def listed(parameters: Iterable[Tensor]) -> list[Tensor]:
    """Return the parameters as a list, which may not be empty.

    Example:
        >>> import torch
        >>> len(listed(torch.nn.Linear(2, 1).parameters()))
        2
    """
    refuse_model(parameters)
    found = list(parameters)
    if not found:
        raise ValueError(
            "There are no parameters. A generator, such as model.parameters(), is empty after its "
            "first use: make a list of it once."
        )
    return found
