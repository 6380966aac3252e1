"""What runs on a GPU gives the numbers of a CPU: compiled functions, the R-operator, words.

A stack on a GPU differs from one on a CPU in four things that need no GPU to be tested: passes and
updates are compiled, products come from the function Hessian instead of a live loss, vectors come
from words, and the diagonal's root is written out. All are switched on here, on the CPU. Traced and
decomposed as on a GPU, the graphs then run without code of their own: a minute of C++ compilation
would say nothing about a GPU's kernels.
"""

from functools import partial

import pytest
import torch

from equilibrate.study import fused as fused_module
from equilibrate.study import passes, stacked_curvature, stacked_optimizer, vector_words
from tests.study.stacks import alone_of, dense, parted, row_of, stack_of, trials, vector_of

pytestmark = pytest.mark.slow

SETTINGS = {
    "sgd": [{"lr": 0.01}, {"lr": 0.02}, {"lr": 0.03, "weight_decay": 0.1}],
    "adam": [{"lr": 1e-3}, {"lr": 2e-3, "betas": (0.5, 0.9)}, {"lr": 3e-3}],
    "esgd": [
        {"lr": 0.01},
        {"lr": 0.02, "decay": None, "warmup_probes": 3},
        {"lr": 0.02, "distribution": "gaussian"},
    ],
    "jacobi": [
        {
            "lr": 1e-3,
            "damping": d,
            "warmup_probes": 9,
            "momentum": 0.5,
            "growth_limit": 1.01,
            "mean_floor": True,
        }
        for d in (1.0, 2.0, 3.0)
    ],
}


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Switch on what `device.type == "cuda"` switches on, all but the captured graphs."""
    calls = []
    compiled = partial(torch.compile, backend="aot_eager_decomp_partition")
    monkeypatch.setattr(fused_module.torch, "compile", compiled)

    def forced(function, device, **options):
        run = fused_module.fused(function, torch.device("cuda"), **options)

        def counted(*arguments):
            calls.append(function.__name__)
            return run(*arguments)

        return counted

    for module in (passes, vector_words, stacked_curvature, stacked_optimizer):
        monkeypatch.setattr(module, "fused", forced)
    first, second = passes.Passes.hessian, stacked_curvature.StackedCurvature.__init__

    def by_function(self, *arguments, compiled):
        return first(self, *arguments, compiled=True)

    def with_words(self, *arguments):
        second(self, *arguments)
        self._words = self._vector_words()

    monkeypatch.setattr(passes.Passes, "hessian", by_function)
    monkeypatch.setattr(stacked_curvature.StackedCurvature, "__init__", with_words)
    yield calls
    passes.passes.cache_clear()
    torch.compiler.reset()


def test_a_mixed_stack_in_mid_run_and_after_a_cut_is_its_trials_alone(as_on_a_gpu):
    problem = dense((12, 8, 3, 8, 12), cases=32)
    listed = [trial for name in SETTINGS for trial in trials(name, SETTINGS[name])]
    stack = stack_of(problem, listed)
    stack.advance(25)
    kept = [row for row in range(len(listed)) if row % 3 != 1]
    stack.keep(kept)
    stack.advance(20)
    ran = {"losses", "_gradients_and_products", "fold", "limit", "step", "count", "move", "spread"}
    assert ran <= set(as_on_a_gpu)
    for place, row in enumerate(kept):
        alone = alone_of(problem, listed[row])
        alone.advance(45)
        assert parted(row_of(stack, place), vector_of(alone)) < 1e-9, listed[row]
