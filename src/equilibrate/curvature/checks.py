"""What a loss must be to have a Hessian, with errors that say what to do."""

from torch import Tensor


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
        raise TypeError(
            f"The loss must be a tensor, got {type(loss).__name__}. Pass the loss itself, not "
            "loss.item()."
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
            "loss.detach()."
        )
