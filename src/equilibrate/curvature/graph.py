"""Reading the autograd graph of a loss before it is differentiated twice.

`torch.autograd.grad` follows only the ways that lead to its inputs, and some of what has no second
derivative hides behind that, silently: a function marked once_differentiable (its error stands on a
side way that is never followed), a reentrant checkpoint (its parameters are no inputs of its node),
a backward that autograd cannot see through (a kernel of one's own: its result looks constant). And
the learned values of a sparse matrix are differentiated a second time as if the loss were linear in
them, gradients through a batch or layer norm that the loss itself holds (a gradient penalty) as if
mean and variance were constants. A loss whose forward pass has computed its gradient is linear to
whoever asks; torch's own is known by name.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction, once_differentiable

_ONCE = once_differentiable(lambda ctx: None).__code__  # one code object serves all it marks
_WRONG = (
    "CheckpointFunctionBackward",
    "SparseCooTensorWithDimsAndTensorsBackward0",
    "CudnnBatchNormBackwardBackward0",  # these three: of a loss that holds a gradient itself
    "NativeBatchNormBackwardBackward0",
    "NativeLayerNormBackwardBackward0",
)
_CHUNKED = "GeneratedBackwardFor_torch_nn__linear_cross_entropy"  # of options=, since torch 2.13


Nodes = Sequence[Any]


def nodes(loss: Tensor) -> Nodes:
    """Return every node on the way from the loss to its leaves, once.

    Whoever keeps them keeps the graph alive, and what it has saved.
    """
    found: list[Any] = [] if loss.grad_fn is None else [loss.grad_fn]
    seen = set(found)
    for node in found:  # grows on the way
        for following, _ in node.next_functions:
            if following is not None and following not in seen:
                seen.add(following)
                found.append(following)
    return found


def leaves(graph: Nodes) -> set[Tensor]:
    """Return all that a backward pass of the loss would give a gradient to."""
    return {node.variable for node in graph if hasattr(node, "variable")}


_KINKED = re.compile(
    "Relu|LeakyRelu|Rrelu|Prelu|Threshold|Hardtanh|Hardswish|Hardsigmoid|Hardshrink|Softshrink"
    "|(Adaptive)?MaxPool"
)


def kinks(graph: Nodes) -> list[str]:
    """Return the activations and poolings whose first derivative jumps, by torch's names.

    Example:
        >>> x = torch.randn(3, requires_grad=True)
        >>> kinks(nodes(x.relu().sum())), kinks(nodes(x.tanh().sum()))
        (['Relu'], [])
    """
    names = {_kind(node.name()) for node in graph}
    return sorted(name for name in names if _KINKED.match(name))


def _kind(name: str) -> str:
    return re.sub(r"(Kernel|WithIndices)?Backward\d*$", "", name)


def reached(loss: Tensor, wanted: Iterable[Tensor]) -> list[Tensor]:
    """Return those of some leaves that the loss depends on."""
    asked = list(wanted)
    found = leaves(nodes(loss)) if asked else set()
    return [leaf for leaf in asked if leaf in found]


@contextmanager
def without_hooks(parameters: Iterable[Tensor]) -> Iterator[None]:
    """Set the tensor hooks of parameters aside: they are meant for gradients, not for H v."""
    kept = [(p, p._backward_hooks) for p in parameters if p._backward_hooks]
    for parameter, _ in kept:
        parameter._backward_hooks = None
    try:
        yield
    finally:
        for parameter, hooks in kept:
            parameter._backward_hooks = hooks


def parallel_models(graph: Nodes) -> list[Any]:
    """Return the DistributedDataParallel models that mark their first pass in this graph.

    With static_graph=True, DDP schedules its only averaging of the first iteration when a gradient
    first passes its output. A probe that passes there before the backward would use that up, and
    no gradient would ever be averaged.
    """
    sinks = (node for node in graph if hasattr(node, "ddp_weakref"))
    models = (sink.ddp_weakref() for sink in sinks)
    return [m for m in models if m.static_graph and not m._static_graph_delay_allreduce_enqueued]


@contextmanager
def unnoticed_by(models: Iterable[Any]) -> Iterator[None]:
    """Let gradients pass the outputs of these models as if the averaging were scheduled already."""
    unmarked = list(models)
    for model in unmarked:
        model._static_graph_delay_allreduce_enqueued = True
    try:
        yield
    finally:
        for model in unmarked:
            model._static_graph_delay_allreduce_enqueued = False


def holds_float16(graph: Nodes) -> bool:
    """Tell whether any result on the way from the parameters to the loss is in float16."""
    return torch.float16 in {result.dtype for node in graph for result in node._input_metadata}


@contextmanager
def refusing_opaque(graph: Nodes) -> Iterator[None]:
    """Raise RuntimeError, at once or while the gradient is taken inside, for what is opaque."""
    for kind in dict.fromkeys(map(type, graph)):  # a few, of many nodes
        if kind.__name__ in _WRONG:
            raise RuntimeError(f"{kind.__name__} cannot be differentiated twice")
        if kind.__name__.startswith(_CHUNKED):
            raise RuntimeError(
                "linear_cross_entropy with options= hands out a gradient that its forward pass has "
                "computed, which cannot be differentiated; without options= it can"
            )
    custom: list[Any] = [node for node in graph if isinstance(node, BackwardCFunction)]
    with ExitStack() as hooks:
        for node in custom:
            name: str = node.name()
            backward = getattr(node._forward_cls, "backward", None)
            if getattr(backward, "__code__", None) is _ONCE:
                raise RuntimeError(f"{name} is marked with @once_differentiable")
            hooks.callback(node.register_hook(_require_live(name)).remove)
        yield


def _require_live(name: str) -> Callable[..., None]:
    """Return a hook that raises where a live gradient comes in and only constants go out."""

    def check(leaving: tuple[Tensor | None, ...], arriving: tuple[Tensor | None, ...]) -> None:
        live = any(g is not None and g.requires_grad for g in arriving)
        given = [g for g in leaving if g is not None]
        if live and given and not any(g.requires_grad for g in given):
            raise RuntimeError(f"autograd cannot see through the backward of {name}")

    return check
