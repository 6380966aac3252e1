"""The spectrum of a layer's own block of the Hessian, before and after preconditioning.

The block H_ll is the Hessian with respect to the tensor theta_l alone, all others held: the part
inside the layer of H v, for a v that is zero outside. So it is measured as the whole is, by the
same recursion with the same intervals, with products that take no derivative of any other layer.

H_ll is a compression of H, and D_l^-1/2 H_ll D_l^-1/2 one of D^-1/2 H D^-1/2: no layer is sharper
than the model, before or after (Cauchy's interlacing). A model much sharper than its sharpest layer
owes that to how its layers interact.
"""

from collections.abc import Collection, Sequence

import torch
from torch import Tensor

from equilibrate.curvature.graph import reached
from equilibrate.monitor.spectrum import Spectrum, spectrum
from equilibrate.optim.live_loss import LiveLoss

Choice = int | Collection[str]


def checked_choice(choice: Choice, names: Collection[str]) -> Choice:
    """Return a number of layers or a set of their names, or say what is wrong with it.

    Example:
        >>> sorted(checked_choice(["0.bias"], ["0.weight", "0.bias"]))
        ['0.bias']
    """
    if isinstance(choice, int):
        if choice < 0:
            raise ValueError(f"layer_spectra must be 0 layers or more, or names, got {choice}")
        return choice
    wanted = {choice} if isinstance(choice, str) else set(choice)
    if unknown := sorted(wanted - set(names)):
        raise ValueError(f"layer_spectra names {unknown}, but the model has {sorted(names)}")
    return wanted


def due_layers(choice: Choice, layers: Sequence[tuple[str, Tensor]], number: int) -> list[int]:
    """Return the positions of the layers that measurement `number` takes: by name, or in turn.

    Example:
        >>> layers = [(name, torch.ones(2)) for name in "abc"]
        >>> [due_layers(2, layers, number) for number in range(3)]
        [[0, 1], [0, 2], [1, 2]]
        >>> due_layers({"b"}, layers, 0)
        [1]
    """
    filled = [i for i, (_, parameter) in enumerate(layers) if parameter.numel()]
    if not isinstance(choice, int):
        return [i for i in filled if layers[i][0] in choice]
    turns = {(number * choice + i) % len(filled) for i in range(min(choice, len(filled)))}
    return [filled[i] for i in sorted(turns)]


def block_spectra(
    loss: Tensor, parameter: Tensor, divisor: Tensor, *, steps: int, seed: int
) -> tuple[Spectrum, Spectrum]:
    """Return the spectra of H_ll and of D_l^-1/2 H_ll D_l^-1/2, by 2 `steps` products at most.

    Example:
        >>> w, bias = (torch.ones(2, requires_grad=True) for _ in range(2))
        >>> loss = (torch.tensor([1.0, 3.0]) * w**2 * bias).sum()
        >>> before, after = block_spectra(loss, w, torch.tensor([2.0, 6.0]), steps=4, seed=0)
        >>> str(before.largest), str(after.largest)
        ('6 [6, 6]', '1 [1, 1]')
    """
    present = bool(reached(loss, [parameter]))
    live = LiveLoss(loss, [parameter]) if present else None

    def product(vectors: list[Tensor]) -> Sequence[Tensor]:
        return [torch.zeros_like(parameter)] if live is None else live(vectors, [0])

    before, after = (
        spectrum(product, [parameter], diagonal=diagonal, steps=steps, starts=1, seed=seed)
        for diagonal in (None, [divisor])
    )
    return before, after
