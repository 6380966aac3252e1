"""What a run of a user's closure changes, and how it is put back: values, gradients, generators."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from equilibrate.distributed import cut_like, local

RandomState = list[tuple[torch.device, Tensor]]


def random_state(parameters: Sequence[Tensor]) -> RandomState:
    """Return the state of torch's generators on the CPU and on the parameters' devices."""
    devices = {torch.device("cpu")} | {p.device for p in parameters}
    return [(d, _generators(d)) for d in sorted(devices, key=str)]


def _generators(device: torch.device) -> Tensor:
    if device.type == "cpu":
        return torch.get_rng_state()
    state: Tensor = torch.get_device_module(device).get_rng_state(device)
    return state


def set_random_state(state: RandomState) -> None:
    """Put the generators back."""
    for device, content in state:
        if device.type == "cpu":
            torch.set_rng_state(content)
        else:
            torch.get_device_module(device).set_rng_state(content, device)


def gradients_of(parameters: Sequence[Tensor]) -> list[Tensor | None]:
    """Return every gradient, cut as its parameter is; the next backward may write over them."""
    return [None if p.grad is None else cut_like(p.grad.detach(), p) for p in parameters]


def copied_gradients(parameters: Sequence[Tensor]) -> list[Tensor | None]:
    """Return a copy of every gradient: a closure, or DDP, may write all into the same buffer."""
    return [None if g is None else g.clone() for g in gradients_of(parameters)]


@dataclass(frozen=True)
class Point:
    """The parameters' values and gradients where the training step is taken, copied."""

    values: list[Tensor]
    gradients: list[Tensor | None]


@contextmanager
def put_back(parameters: Sequence[Tensor]) -> Iterator[Point]:
    """Hand out the present point; restore it and the random state on leaving, whatever happens."""
    gradients = [p.grad for p in parameters]
    copies = [None if g is None else g.detach().clone() for g in gradients]
    cut = [None if c is None else cut_like(c, p) for c, p in zip(copies, parameters, strict=True)]
    point = Point([p.detach().clone() for p in parameters], cut)
    state = random_state(parameters)
    try:
        yield point
    finally:
        with torch.no_grad():
            set_values(parameters, point.values)
            _put_gradients(parameters, gradients, copies)
        set_random_state(state)


@contextmanager
def gradients_put_back(reached: Iterable[Tensor]) -> Iterator[None]:
    """Restore the gradients of leaves that are no parameters of the optimizer's own."""
    leaves = list(reached)
    gradients = [leaf.grad for leaf in leaves]
    copies = [None if g is None else g.detach().clone() for g in gradients]
    try:
        yield
    finally:
        with torch.no_grad():
            _put_gradients(leaves, gradients, copies)


def _put_gradients(
    leaves: Sequence[Tensor],
    places: Sequence[Tensor | None],
    contents: Sequence[Tensor | None],
) -> None:
    """Give every leaf a gradient of this content, in the tensor it had where that is known."""
    for leaf, place, content in zip(leaves, places, contents, strict=True):
        if content is None or place is None or _overlaps(place):
            leaf.grad = content
        else:
            leaf.grad = place
            place.copy_(content)  # a bucket of DDP may have been written through it


def _overlaps(gradient: Tensor) -> bool:
    """Tell whether elements share memory, as in an expanded tensor: it cannot be written to."""
    sizes = zip(gradient.shape, gradient.stride(), strict=True)
    return any(size > 1 and stride == 0 for size, stride in sizes)


def set_values(parameters: Sequence[Tensor], values: Sequence[Tensor]) -> list[Tensor]:
    """Copy values into this rank's parts of the parameters, and return these parts."""
    own = [local(parameter) for parameter in parameters]
    torch._foreach_copy_(own, [local(value) for value in values])
    return own


def places_in_buffers(parameters: Sequence[Tensor]) -> list[Tensor | None]:
    """Return the gradients that lie in a buffer of the user's: held, they keep nothing alive."""
    gradients = [parameter.grad for parameter in parameters]
    return [g if g is not None and g._is_view() else None for g in gradients]


@contextmanager
def undone_on_error(
    parameters: Sequence[Tensor],
    earlier: Sequence[Tensor | None],
    places: Sequence[Tensor | None],
    start: RandomState,
) -> Iterator[None]:
    """Where measuring is refused, undo the closure's own run too: gradients and random state."""
    try:
        yield
    except BaseException:
        with torch.no_grad():
            _put_gradients(parameters, places, earlier)
        set_random_state(start)
        raise
