"""The methods of Figure 3, with the search of the paper's section 6.

Every arm has one learning rate drawn from one decade, the paper's: 0.01 to 0.1 for SGD and ESGD,
1e-4 to 1e-3 for RMSProp and Jacobi. The damping is 1e-4, 1e-5 or 1e-6 (RMSProp calls it eps), its
decay 0.9 or 0.95. ESGD as shipped keeps its own damping: only its learning rate is searched.

Three arms are ours and not the paper's: ESGD whose diagonal remembers four times as long, 2,000
steps, and, so that a space widened for one is widened for all, RMSProp and Jacobi that remember as
long. SGD remembers nothing.
"""

import torch

from equilibrate.optim import ALGORITHM_1, ESGD, JacobiSGD
from equilibrate.study.methods import Method
from equilibrate.study.space import Choice, LogUniform

_FAST = LogUniform(0.01, 0.1)
_SLOW = LogUniform(1e-4, 1e-3)
_DAMPING = Choice(1e-4, 1e-5, 1e-6)
_LONG = 0.9995  # a memory of 2,000 steps

# "The Hessian-vector product is only computed every 20 iterations" (section 4).
EVERY_20 = {**ALGORITHM_1, "probe_every": 20}

# With 100 probes |E[v * Hv]| is mostly the estimator's noise on these networks. This arm starts
# from 1,600 and remembers as many: one probe in 5 steps, half forgotten after 7,000 steps.
_CLEAN = {**EVERY_20, "probe_every": 5, "decay": 0.9999, "warmup_probes": 1600}

ARMS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("sgd", torch.optim.SGD, {"lr": _FAST}, label="SGD"),
        Method(
            "rmsprop",
            torch.optim.RMSprop,
            {"lr": _SLOW, "eps": _DAMPING, "alpha": Choice(0.9, 0.95)},
            label="RMSProp",
        ),
        Method(
            "jacobi",
            JacobiSGD,
            {"lr": _SLOW, "damping": _DAMPING},
            {**EVERY_20, "distribution": "rademacher"},
            label="Jacobi SGD",
        ),
        Method(
            "jacobi-clean",
            JacobiSGD,
            {"lr": _SLOW, "damping": _DAMPING},
            {**_CLEAN, "distribution": "rademacher"},
            label="Jacobi SGD, noise averaged out",
        ),
        Method(
            "esgd-literal",
            ESGD,
            {"lr": _FAST, "damping": _DAMPING},
            EVERY_20,
            label="ESGD, Algorithm 1 to the letter",
        ),
        Method(
            "esgd-warm",
            ESGD,
            {"lr": _FAST, "damping": _DAMPING},
            {**EVERY_20, "warmup_probes": 20},
            label="ESGD, Algorithm 1 with warm-up",
        ),
        Method("esgd", ESGD, {"lr": _FAST}, label="ESGD as shipped"),
        Method(
            "esgd-memory",
            ESGD,
            {"lr": _FAST},
            {"decay": _LONG},
            label="ESGD with a memory of 2,000 steps",
        ),
        Method(
            "rmsprop-memory",
            torch.optim.RMSprop,
            {"lr": _SLOW, "eps": _DAMPING},
            {"alpha": _LONG},
            label="RMSProp with a memory of 2,000 steps",
        ),
        Method(
            "jacobi-memory",
            JacobiSGD,
            {"lr": _SLOW, "damping": _DAMPING},
            {**EVERY_20, "distribution": "rademacher", "decay": _LONG},
            label="Jacobi SGD with a memory of 2,000 steps",
        ),
    )
}

LATER_ROUNDS = (
    {"esgd-memory": "esgd"},
    {"rmsprop-memory": "rmsprop", "jacobi-memory": "jacobi"},
)
"""Arms that came after records were published, each with the arm whose drawn settings it has too.

Every round of them is searched apart, and shown once it is recorded.
"""

LATER = {arm: base for arms in LATER_ROUNDS for arm, base in arms.items()}
"""The same, in one."""

PUBLISHED: dict[str, dict[str, float]] = {
    "sgd": {"lr": 0.06},
    "rmsprop": {"lr": 6.7e-4, "alpha": 0.95, "eps": 1e-6},
    "jacobi": {"lr": 6e-4, "damping": 1e-4},
    "esgd-warm": {"lr": 0.033, "damping": 1e-4},
    "esgd": {"lr": 0.03},
}
"""One setting an arm for quick runs: inside the paper's ranges, which publish no winner."""
