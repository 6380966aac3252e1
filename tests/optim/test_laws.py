"""Every law on every case, for both optimizers, with and without momentum, decay and groups."""

import pytest

from equilibrate import ESGD, JacobiSGD
from tests.optim.laws import LAWS, Setting

SETTINGS = {
    "ESGD": Setting(ESGD),
    "ESGD mean, normals": Setting(ESGD, {"decay": None, "distribution": "gaussian"}),
    "ESGD Nesterov": Setting(ESGD, {"momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    "ESGD limit": Setting(ESGD, {"momentum": 0.9, "update_limit": 0.1}),
    "ESGD two groups": Setting(ESGD, groups=({"probe_every": 1}, {"probe_every": 3, "lr": 0.01})),
    "Jacobi": Setting(JacobiSGD, {"damping": 1.0}),
    "Jacobi momentum": Setting(JacobiSGD, {"damping": 1.0, "momentum": 0.5}),
}


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
def test_law(law, case, setting):
    law(case.values_and_function, setting)
