"""The ways to probe, as iterations that leave a model as it was; what `compare_probes` runs."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor, nn

from equilibrate.attention import math_attention
from equilibrate.optim import ESGD
from equilibrate.optim.restoring import random_state, set_random_state, set_values

Loss = Callable[[], Tensor]

PROBE = "probe(loss)"
SHARED = "probe(loss, backward=True)"
CLOSURE = "step(closure)"
ORDINARY = "no probe"
GRADIENT = "gradient"

_NEVER = 2**31


class Ways:
    """One iteration of each kind, each with an ESGD of its own, whose learning rate is zero.

    All draw the same vectors, so that their diagonals, |H v| after one probe, can be compared.
    Call `begin` before `run`: an iteration finds the gradients that its own loop would leave it.
    """

    def __init__(self, parameters: Sequence[Tensor], loss: Loss, seed: int) -> None:
        self._parameters, self._loss, self._seed = list(parameters), loss, seed
        self._start = random_state(parameters)
        self._inside = {PROBE, SHARED}  # math_attention, until it is known to do without
        self.optimizers = {name: self._optimizer() for name in (PROBE, SHARED, CLOSURE)}
        self.optimizers[ORDINARY] = self._optimizer(_NEVER)
        self._give_diagonal(self.optimizers[ORDINARY])

    def begin(self, way: str) -> None:
        """Leave gradients as the iteration before would have: a closure clears them itself."""
        self.clear()
        if way == CLOSURE:
            self.run(GRADIENT)
            # The same gradient once more might be taken for one that the closure adds to.
            torch._foreach_mul_([p.grad for p in self._parameters if p.grad is not None], 2)

    def run(self, way: str) -> None:
        """Run one iteration, from the same random state every time."""
        set_random_state(self._start)
        if way == GRADIENT:
            self._loss().backward()  # type: ignore[no-untyped-call]
        elif way == CLOSURE:
            self._by_closure(self.optimizers[way])
        else:
            self._by_loss(way)

    def clear(self) -> None:
        """Drop every gradient."""
        for parameter in self._parameters:
            parameter.grad = None

    def products(self, way: str) -> list[Tensor]:
        """Return |H v| of the vector that a new optimizer draws first."""
        self.optimizers[way] = self._optimizer()
        self.begin(way)
        self.run(way)
        return self.optimizers[way].diagonal()

    def fails_outside(self, way: str) -> bool:
        """Tell whether this way raises where the forward pass is outside `math_attention`.

        Only then does it go on inside: the fast kernel is what it is to be timed with.
        """
        self._inside.discard(way)
        try:
            self.products(way)
        except torch.OutOfMemoryError:
            return False
        except RuntimeError:
            self._inside.add(way)
            return True
        return False

    def coarser(self) -> list[Tensor]:
        """Return |H v| by differences over twice the width that was chosen."""
        width = self.optimizers[CLOSURE].param_groups[0]["difference_step"]
        self.optimizers[CLOSURE] = self._optimizer()
        self.optimizers[CLOSURE].param_groups[0]["difference_step"] = 2 * width
        self.begin(CLOSURE)
        self.run(CLOSURE)
        found = self.optimizers[CLOSURE].diagonal()
        self.optimizers[CLOSURE].param_groups[0]["difference_step"] = width
        return found

    def slopes(self) -> list[Tensor]:
        """Return the gradient, zeros where there is none."""
        self.begin(GRADIENT)
        self.run(GRADIENT)
        return [torch.zeros_like(p) if p.grad is None else p.grad for p in self._parameters]

    def _optimizer(self, every: int = 1) -> ESGD:
        alone = {"warmup_probes": 1, "seed": self._seed, "process_group": False}
        return ESGD(self._parameters, lr=0.0, probe_every=every, **alone)  # type: ignore[arg-type]

    def _give_diagonal(self, optimizer: ESGD) -> None:
        """Let an optimizer step without having probed."""
        ones = [torch.ones_like(p) for p in self._parameters]
        optimizer.observe(ones, ones)
        self._loss().backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    def _by_loss(self, way: str) -> None:
        optimizer, shared = self.optimizers[way], way == SHARED
        with math_attention(optimizer) if way in self._inside else nullcontext():
            loss = self._loss()
            optimizer.probe(loss, backward=shared)
            if not shared:
                loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    def _by_closure(self, optimizer: ESGD) -> None:
        def closure() -> float:
            optimizer.zero_grad()
            loss = self._loss()
            loss.backward()  # type: ignore[no-untyped-call]
            return float(loss.detach())

        optimizer.step(closure)


@contextmanager
def unchanged(model: nn.Module) -> Iterator[None]:
    """Put back whatever iterations change: values, gradients, buffers, random state."""
    parameters = list(model.parameters())
    state = random_state(parameters)
    values = [p.detach().clone() for p in parameters]
    kept = [
        (m, name, b) for m in model.modules() for name, b in m._buffers.items() if b is not None
    ]
    for module, name, buffer in kept:
        module._buffers[name] = buffer.clone()  # the copies are written to
    try:
        with without_gradients(parameters):
            yield
    finally:
        with torch.no_grad():
            set_values(parameters, values)
        for module, name, buffer in kept:
            module._buffers[name] = buffer
        set_random_state(state)


@contextmanager
def without_gradients(tensors: Iterable[Tensor]) -> Iterator[None]:
    """Set gradients aside, and put the very same tensors back."""
    kept = [(tensor, tensor.grad) for tensor in tensors]
    for tensor, _ in kept:
        tensor.grad = None
    try:
        yield
    finally:
        for tensor, gradient in kept:
            tensor.grad = gradient
