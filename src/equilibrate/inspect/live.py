"""Inspecting a model at hand, trained or not: the call for a notebook."""

import copy
from dataclasses import replace
from pathlib import Path

from torch import Tensor, nn

from equilibrate.inspect import report
from equilibrate.inspect.findings import FULL, QUICK, Findings
from equilibrate.inspect.measure import inspect, work
from equilibrate.inspect.place import make_room, place_of
from equilibrate.inspect.subject import InspectError, Subject
from equilibrate.study import form
from equilibrate.study.problem import Measure, Problem, ProblemError
from equilibrate.study.progress import Progress

_USUAL_BATCH = 200


def inspect_model(
    model: nn.Module,
    data: tuple[Tensor, Tensor],
    loss: Measure,
    *,
    batch_size: int | None = None,
    quick: bool = False,
    seed: int = 0,
    path: Path | str | None = None,
    name: str | None = None,
) -> Findings:
    """Measure the curvature of a live model at its present weights; write the report if asked.

    The model is copied and left as it is, running statistics, gradients and mode too: in
    `model.eval()` there is no dropout. It is measured on its own device and in its own precision.

    Args:
        model: trained or not.
        data: (inputs, targets), two tensors whose first dimension counts cases.
        loss: loss(output, targets), a scalar.
        batch_size: cases in a batch; None takes 200, or all where there are fewer.
        quick: fewer products, with wider intervals.
        seed: of the batches and the probes.
        path: of an HTML report; None writes none.
        name: for the report; None takes that of the model's class.

    Returns:
        The numbers of the report; `verdict(found)` is its first sentence.

    Raises:
        InspectError: the model cannot be inspected; the text says why and what to do.
        ProblemError: what was given has another form; the text says which.
        OSError: the report cannot be written there; nothing has been measured.

    Example:
        >>> import torch
        >>> inputs = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
        >>> model = nn.Linear(3, 1)
        >>> found = inspect_model(model, (inputs, inputs.sum(1, keepdim=True)), nn.MSELoss())
        >>> found.size
        4
    """
    if not isinstance(model, nn.Module):
        raise ProblemError(f"model is a {type(model).__name__}; give the network itself")
    name = type(model).__name__ if name is None else name
    problem = _problem(model, data, loss, batch_size, name)
    parameter = next(model.parameters(), None)
    if parameter is None:
        raise InspectError(f"{name}: the network has no parameters, so that nothing is curved")
    place = None if path is None else place_of(Path(path))
    if place is not None:
        make_room(place)  # before minutes of computing, not after
    budget = QUICK if quick else FULL
    subject = Subject(problem, seed=seed, device=parameter.device, batches=budget.batches)
    progress = Progress(name[:22], work(subject, budget))
    found = inspect(subject, budget, quick=quick, progress=progress)
    found = replace(found, full="with quick=False")
    progress.finish()
    if place is not None:
        report.write(found, place, command="inspect_model")
    return found


def _problem(
    model: nn.Module,
    data: tuple[Tensor, Tensor],
    loss: Measure,
    batch_size: int | None,
    name: str,
) -> Problem:
    def network(seed: int) -> nn.Module:
        return copied

    cases = _count(data)
    batch_size = min(_USUAL_BATCH, cases) if batch_size is None else batch_size
    if not 1 <= batch_size <= cases:
        raise ProblemError(
            f"a batch of {batch_size} cannot be taken from {cases} cases; give a batch_size "
            f"between 1 and {cases}"
        )
    copied = _copy(model, name)
    return Problem(name, network, lambda: data, loss, batch_size=batch_size)


def _count(data: tuple[Tensor, Tensor]) -> int:
    """Return the number of cases, or raise in words of what was given, not of a `Problem`."""
    if mistake := form.cases_mistake(data, "data is", "be"):
        raise ProblemError(mistake)
    inputs, targets = map(len, data)
    if inputs != targets:
        raise ProblemError(
            f"data holds {inputs} inputs and {targets} targets; every input needs its target"
        )
    if not inputs:
        raise ProblemError("data holds no case; give at least one input with its target")
    return inputs


def _copy(model: nn.Module, name: str) -> nn.Module:
    """Return the model a second time, without its gradients."""
    try:
        copied = copy.deepcopy(model)
    except (RuntimeError, TypeError) as error:  # it holds a tensor of a graph, a lock, a file
        raise InspectError(
            f"{name}: the model cannot be copied. Does its forward keep an output on self? Keep "
            f"output.detach(), or take it off before. The reason: {error}"
        ) from error
    copied.zero_grad(set_to_none=True)
    return copied
