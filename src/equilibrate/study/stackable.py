"""Whether trials of a problem can be stacked: network, loss and error are tried on one batch.

What a stack cannot do (masks, decisions by value, numbers taken out of tensors, random draws) shows
only as it is done, in the user's own code, which may raise anything there.
"""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.func import stack_module_state

from equilibrate.study.passes import Parameters, Passes
from equilibrate.study.precision import computing, dtype_of, forward
from equilibrate.study.problem import Problem


def why_not_stackable(problem: Problem, precision: str, device: torch.device) -> str | None:
    """Return why trials of a problem cannot be stacked, or None where they can."""
    networks = [problem.network(seed).to(device, dtype_of(precision)) for seed in (0, 1)]
    if next(networks[0].buffers(), None) is not None:
        return "the network has buffers, which training changes or layers share"
    if not all(p.requires_grad for network in networks for p in network.parameters()):
        return "the network has frozen parameters, which a stack would train"
    inputs, targets = (tensor[: problem.batch_size] for tensor in problem.cases)
    batch = replace(problem, data=lambda: (inputs, targets))
    with computing(precision):
        return _why_not(batch, networks, precision, device)


def _why_not(
    batch: Problem, networks: list[nn.Module], precision: str, device: torch.device
) -> str | None:
    """Compute what training will, stacked and network by network, and compare."""
    x, y = batch.on(device, dtype_of(precision))
    passes, what = Passes(batch, precision, device), "network"
    xs, ys = (tensor.expand(len(networks), *tensor.shape) for tensor in (x, y))
    stacked: dict[str, Callable[[Parameters], Tensor]] = {
        "loss": lambda parameters: passes.losses(parameters, xs, ys),
        "error": lambda parameters: passes.errors(parameters, x, y),
    }

    def alone(network: nn.Module) -> Tensor:
        with forward(precision, device):
            output = network.train(what == "loss")(x)
        return (batch.loss if what == "loss" else batch.reported)(output, y).reshape(())

    try:
        parameters, _ = stack_module_state(networks)
        passes.outputs(parameters, xs)
        for what, together in stacked.items():
            with torch.set_grad_enabled(what == "loss"):  # as training does
                found, expected = together(parameters), torch.stack([alone(n) for n in networks])
            if not _same(found, expected):
                return f"the stacked networks have another {what} than the networks alone"
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        return _told(what, error)
    return None


def _same(stacked: Tensor, alone: Tensor) -> bool:
    # Sums of a thousand products in another order: far from any real difference.
    return stacked.shape == alone.shape and torch.allclose(
        stacked.double(), alone.double(), 1e-2, 1e-2, equal_nan=True
    )


def _told(what: str, error: Exception) -> str:
    if "random operation" in str(error):  # where torch speaks of its randomness modes
        return f"the {what} draws random numbers, as dropout does"
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    return f"torch cannot stack the {what} ({reason})"
