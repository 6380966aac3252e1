"""One update of every method before a study begins: what cannot train is named at once.

A method that fails in its turn would end a study of hours with a traceback. The update is made on a
network of its own and on the first batch alone, and leaves nothing behind.
"""

from dataclasses import replace

import torch

from equilibrate.study.alone import Alone
from equilibrate.study.compare import Plan
from equilibrate.study.contenders import MethodError
from equilibrate.study.methods import Method
from equilibrate.study.problem import Problem
from equilibrate.study.trial import Trial

_INSTEAD = {
    "Muon": "--methods muon gives the hidden matrices to Muon and all else to AdamW",
    "MuonAdamW": "--methods adamw trains any network",
    "LBFGS": "--methods equilibrate.rivals.lbfgs:LBFGS is given the closure that it calls",
    "SparseAdam": "it takes sparse gradients alone; --methods adam takes dense ones",
}

_ATTENTION = (
    "this attention has no second derivative. In the model's forward, compute it inside `with "
    "torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):`"
)


def rehearse(plan: Plan, device: torch.device) -> None:
    """Make one update with every method of a plan; raise MethodError for those that cannot."""
    inputs, targets = (tensor[: plan.problem.batch_size] for tensor in plan.problem.cases)
    small = replace(plan.problem, data=lambda: (inputs, targets))
    refused = [why for method in plan.methods if (why := _why_not(small, method, plan, device))]
    if refused:
        raise MethodError("; ".join(refused))


def _why_not(problem: Problem, method: Method, plan: Plan, device: torch.device) -> str | None:
    """Return why a method cannot train a problem, and what to do; None where it can."""
    (settings,) = method.settings(1)
    trial = Trial(problem.name, "", method.name, settings, 0, problem.batch_size, 1, plan.precision)
    try:
        Alone(problem, method, [trial], device).advance(1)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:  # whatever a class or a network of the user's may raise
        reason = " ".join(str(error).split()) or type(error).__name__
        # Torch's own words where the optimizer's speak of a training loop, which is ours here.
        torchs = " ".join(str(error.__cause__ or error).split())
        if "attention" in torchs and "derivative" in torchs:
            return f"{method.name} cannot train {problem.name} ({torchs}): {_ATTENTION}"
        instead = _INSTEAD.get(method.optimizer.__name__, "mend it, or leave it out of --methods")
        return f"{method.name} cannot train {problem.name} ({reason}): {instead}"
    return None
