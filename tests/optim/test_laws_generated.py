"""The same laws over generated problems: any shapes, dtypes, groups and schedules."""

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from equilibrate import ESGD, JacobiSGD
from tests.optim.laws import AMPLIFIED, LAWS, Setting, amplification

SHAPES = st.sampled_from([(), (1,), (3,), (2, 3), (1, 2, 2), (0, 2), (2, 1, 1, 2, 1)])


class Generated:
    """f = mean cos(a_r . theta) + mean (b_r . theta)^2 / 2 + mean theta^4: smooth, indefinite."""

    def __init__(self, shapes: list[tuple[int, ...]], dtype: torch.dtype, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> torch.Tensor:
            return torch.randn(shape, dtype=torch.float64, generator=generator).to(dtype)

        self.values = [normal(*shape) for shape in shapes]
        count = sum(v.numel() for v in self.values)
        self.waves, self.bowls = normal(5, count), normal(2, count)
        self.name = f"{shapes} {dtype} {seed}"

    def make(self):
        return [v.clone() for v in self.values], self.function

    def function(self, values):
        flat = torch.cat([v.reshape(-1) for v in values])
        waves, bowls = torch.cos(self.waves @ flat), (self.bowls @ flat).square()
        return waves.mean() + bowls.mean() / 2 + (flat**4).mean()

    def __repr__(self) -> str:
        return self.name


@st.composite
def problems(draw):
    shapes = draw(st.lists(SHAPES, min_size=1, max_size=4))
    if not any(torch.Size(s).numel() for s in shapes):
        shapes.append((2,))
    dtype = draw(st.sampled_from([torch.float64, torch.float32]))
    return Generated(shapes, dtype, draw(st.integers(0, 99)))


@st.composite
def setups(draw):
    optimizer = draw(st.sampled_from([ESGD, JacobiSGD]))
    momentum = draw(st.sampled_from([0.0, 0.9]))
    options = {
        "damping": draw(st.sampled_from([0.1, 1.0])) if optimizer is ESGD else 1.0,
        "decay": draw(st.sampled_from([None, 0.9, 0.99])),
        "probe_every": draw(st.integers(1, 4)),
        "warmup_probes": draw(st.sampled_from([1, 2, 5])),
        "distribution": draw(st.sampled_from(["rademacher", "gaussian"])),
        "momentum": momentum,
        "nesterov": momentum > 0 and draw(st.booleans()),
        "weight_decay": draw(st.sampled_from([0.0, 0.01])),
        "maximize": draw(st.booleans()),
        "seed": draw(st.integers(0, 1000)),
    }
    groups = draw(st.lists(st.fixed_dictionaries({"probe_every": st.integers(1, 3)}), max_size=2))
    return Setting(optimizer, options | {"lr": 0.05}, tuple(groups))


@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
@settings(
    max_examples=12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
@given(problem=problems(), setting=setups())
def test_law_on_a_generated_problem(law, problem, setting):
    # The tolerance of the laws allows for a rounding that grows; a path on which it grows without
    # bound (the fourth power climbed by `maximize`, say) can show nothing.
    assume(amplification(problem.make, setting) < AMPLIFIED / 100)
    law(problem.make, setting)
