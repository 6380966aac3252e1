"""A loss that cannot be differentiated twice: the error points to the closure, which works."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tests.optim.bad_input import INSTEAD, TRAINED, X, always_due, loss_of, network
from tests.optim.loops import train_by_closure
from tests.optim.watching import unchanged


class OnceDifferentiable(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient: Tensor) -> Tensor:
        return gradient * ctx.saved_tensors[0].cos()


class Opaque(OnceDifferentiable):
    """A backward that autograd cannot see through, as kernels in CUDA or Triton are."""

    @staticmethod
    def backward(ctx, gradient: Tensor) -> Tensor:
        with torch.no_grad():
            return gradient * ctx.saved_tensors[0].cos()


def through(function: type[torch.autograd.Function]) -> Callable[[nn.Module], Tensor]:
    return lambda model: (function.apply(model(X)) - X[:, :1]).square().mean()


def once_then_linear(model: nn.Module) -> Tensor:
    """The gradient that comes in is a constant, so torch does not even mark the one going out."""
    return OnceDifferentiable.apply(model(X)).sum() + loss_of(model)


def attention_in_a_checkpoint(model: nn.Module) -> Tensor:
    def attend(x: Tensor) -> Tensor:
        q = model[0](x).view(1, 1, 6, 4)
        return functional.scaled_dot_product_attention(q, q, q)

    return checkpoint(attend, X, use_reentrant=False).square().mean() + loss_of(model)


def bag(model: nn.Module) -> Tensor:
    """The largest of its rows; sums and means have a second derivative."""
    rows = torch.tensor([[0, 1], [2, 3]])
    largest = functional.embedding_bag(rows, model[0].weight, mode="max")
    return largest.pow(4).mean() + loss_of(model)


def compiled(model: nn.Module) -> Tensor:
    return loss_of(torch.compile(model, backend="aot_eager"))


def reentrant(first: int, last: int) -> Callable[[nn.Module], Tensor]:
    """Put some of the layers under the older kind of checkpoint."""

    def forward(model: nn.Module, x: Tensor) -> Tensor:
        x = model[:first](x.clone().requires_grad_())
        return model[last:](checkpoint(model[first:last], x, use_reentrant=True))

    return lambda model: loss_of(lambda x: forward(model, x))


def weight_norm_in_a_checkpoint(model: nn.Module) -> Tensor:
    """torch differentiates it as if the norm were a constant: wrong by a factor, silently."""

    def forward(x: Tensor) -> Tensor:
        weight = torch._weight_norm(model[0].weight, model[2].weight.T.contiguous(), 0)
        return model[2](torch.tanh(functional.linear(x, weight)))

    return loss_of(lambda x: checkpoint(forward, x, use_reentrant=False))


def sparse_values(model: nn.Module) -> Tensor:
    """Learned values of a sparse matrix: their second derivative is left out, silently."""
    places = torch.ones(4, 3).nonzero().T
    values = model[0].weight.view(-1)
    weight = torch.sparse_coo_tensor(places, values, (4, 3), check_invariants=True)
    return loss_of(lambda x: model[2](torch.tanh(torch.sparse.mm(weight, x.T).T)))


def penalised(norm: Callable[[], nn.Module]) -> Callable[[nn.Module], Tensor]:
    """A gradient penalty: torch holds mean and variance constant in the third derivative."""

    def loss(model: nn.Module) -> Tensor:
        x = X.clone().requires_grad_()
        outputs = model[2](torch.tanh(norm().to(X)(model[0](x))))
        (slope,) = torch.autograd.grad(outputs.sum(), x, create_graph=True)
        return slope.square().mean() + loss_of(model)

    return loss


def chunked_cross_entropy(**options: bool) -> Callable[[nn.Module], Tensor]:
    """Its forward pass computes the gradient, which its backward hands out as a constant."""

    def loss(model: nn.Module) -> Tensor:
        given = {"options": nn.LinearCrossEntropyOptions(**options)}
        target = torch.arange(6) % 4
        return functional.linear_cross_entropy(X, model[0].weight, target, **given) + loss_of(model)

    return loss


# name: the loss, and what must be said of it; torch itself refuses the first five
ONCE_DIFFERENTIABLE: dict[str, tuple[Callable[[nn.Module], Tensor], str]] = {
    "attention in a checkpoint": (
        attention_in_a_checkpoint,
        "The reason: .*scaled_dot_product.*not implemented",
    ),
    "an embedding bag": (bag, "The reason: .*embedding_bag.*not implemented"),
    "a compiled model": (compiled, "The reason: .*double backward"),
    "a reentrant checkpoint in the middle": (reentrant(1, 2), "The reason: .*[Cc]heckpoint"),
    "a reentrant checkpoint at the end": (reentrant(1, 3), "The reason: .*[Cc]heckpoint"),
    "a reentrant checkpoint at the start": (reentrant(0, 2), "[Cc]heckpoint"),
    "a reentrant checkpoint around all": (reentrant(0, 3), "[Cc]heckpoint"),
    "a once-differentiable function": (through(OnceDifferentiable), "OnceDifferentiable"),
    "a once-differentiable function, then linear": (once_then_linear, "OnceDifferentiable"),
    "an opaque backward": (through(Opaque), "Opaque"),
    "torch's weight norm in a checkpoint": (weight_norm_in_a_checkpoint, "WeightNorm.*checkpoint"),
    "a penalty through batch norm": (penalised(lambda: nn.BatchNorm1d(4)), "BatchNormBackwardB"),
    "a penalty through layer norm": (penalised(lambda: nn.LayerNorm(4)), "LayerNormBackwardB"),
    "values of a sparse matrix": (sparse_values, "SparseCooTensor"),
}
if hasattr(nn, "LinearCrossEntropyOptions"):  # since torch 2.13
    words = "linear_cross_entropy.* without options= it can"
    ONCE_DIFFERENTIABLE |= {
        "chunked cross-entropy": (chunked_cross_entropy(), words),
        "the same, twice": (chunked_cross_entropy(allow_retain_graph=True), words),
    }


@TRAINED
@pytest.mark.parametrize("name", ONCE_DIFFERENTIABLE)
def test_without_second_derivatives_the_error_points_to_the_closure_which_works(name, steps):
    """Some of these torch would get wrong, or leave out, without a word."""
    make, words = ONCE_DIFFERENTIABLE[name]
    model = network()
    optimizer = always_due(model, steps=steps)
    loss = make(model)
    with unchanged(optimizer), pytest.raises(RuntimeError, match=f"(?s){INSTEAD}.*{words}"):
        optimizer.probe(loss)
    loss.backward()  # still can
    before = float(loss.detach())
    train_by_closure(optimizer, lambda: make(model), 5)
    assert float(make(model).detach()) < before
