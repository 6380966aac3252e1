"""torch's own first-order rules for many trials at once, one tensor (trials, ...) at a time.

Each function has a parameter, its gradient, what torch keeps for it (named as torch names it), and
settings that broadcast over trials; a test holds it equal to the torch optimizer. `rest_of_x` is
1 - x, `step_size` a learning rate with its correction: `stacked_rules` derives them in double
precision.
"""

from torch import Tensor


def sgd_(
    parameter: Tensor,
    gradient: Tensor,
    *,
    lr: Tensor,
    momentum: Tensor,
    weight_decay: Tensor,
    momentum_buffer: Tensor | None = None,
    nesterov: bool = False,
) -> None:
    """Take a step of torch.optim.SGD; with `nesterov`, of Nesterov's accelerated gradient."""
    update = gradient + weight_decay * parameter
    if momentum_buffer is not None:
        momentum_buffer.mul_(momentum).add_(update)
        update = update + momentum * momentum_buffer if nesterov else momentum_buffer
    parameter.sub_(lr * update)


def rmsprop_(
    parameter: Tensor,
    gradient: Tensor,
    *,
    square_avg: Tensor,
    lr: Tensor,
    alpha: Tensor,
    rest_of_alpha: Tensor,
    eps: Tensor,
    momentum: Tensor,
    weight_decay: Tensor,
    momentum_buffer: Tensor | None = None,
) -> None:
    """Take a step of torch.optim.RMSprop: g / (sqrt(E[g^2]) + eps), then momentum."""
    gradient = gradient + weight_decay * parameter
    square_avg.mul_(alpha).add_(rest_of_alpha * gradient * gradient)
    update = gradient / (square_avg.sqrt() + eps)
    if momentum_buffer is not None:
        momentum_buffer.mul_(momentum).add_(update)
        update = momentum_buffer
    parameter.sub_(lr * update)


def adagrad_(
    parameter: Tensor,
    gradient: Tensor,
    *,
    sum: Tensor,
    step_size: Tensor,
    eps: Tensor,
    weight_decay: Tensor,
    lr: Tensor,
    lr_decay: Tensor,
) -> None:
    """Take a step of torch.optim.Adagrad: g / (sqrt(sum g^2) + eps)."""
    gradient = gradient + weight_decay * parameter
    sum.add_(gradient * gradient)
    parameter.sub_(step_size * gradient / (sum.sqrt() + eps))


def adadelta_(
    parameter: Tensor,
    gradient: Tensor,
    *,
    square_avg: Tensor,
    acc_delta: Tensor,
    lr: Tensor,
    rho: Tensor,
    rest_of_rho: Tensor,
    eps: Tensor,
    weight_decay: Tensor,
) -> None:
    """Take a step of torch.optim.Adadelta: g sqrt(E[d^2] + eps) / sqrt(E[g^2] + eps)."""
    gradient = gradient + weight_decay * parameter
    square_avg.mul_(rho).add_(rest_of_rho * gradient * gradient)
    delta = (acc_delta + eps).sqrt() / (square_avg + eps).sqrt() * gradient
    acc_delta.mul_(rho).add_(rest_of_rho * delta * delta)
    parameter.sub_(lr * delta)


def adam_(
    parameter: Tensor,
    gradient: Tensor,
    *,
    exp_avg: Tensor,
    exp_avg_sq: Tensor,
    rest_of_beta1: Tensor,
    rest_of_beta2: Tensor,
    root_correction: Tensor,
    step_size: Tensor,
    beta2: Tensor,
    eps: Tensor,
    weight_decay: Tensor,
    **unused: Tensor,
) -> None:
    """Take a step of torch.optim.Adam, with its bias corrections."""
    gradient = gradient + weight_decay * parameter
    exp_avg.add_(rest_of_beta1 * (gradient - exp_avg))
    exp_avg_sq.mul_(beta2).add_(rest_of_beta2 * gradient * gradient)
    parameter.sub_(step_size * exp_avg / (exp_avg_sq.sqrt() / root_correction + eps))


def adamw_(parameter: Tensor, gradient: Tensor, *, shrink: Tensor, **others: Tensor) -> None:
    """Take a step of torch.optim.AdamW: shrink, then Adam without weight decay."""
    parameter.mul_(shrink)
    adam_(parameter, gradient, **{**others, "weight_decay": others["weight_decay"] * 0})
