"""The summary is drawn whoever meets the target whenever: also at once, also never."""

import io
import math

import pytest

from equilibrate.wins.drawing import summary
from tests.wins.test_reading import EVEN, made

# Final errors of runs that start at 1: the target is AdamW's median.
FINALS = {
    "later": ((0.1,) * 3, (0.2,) * 3),
    "AdamW at once": ((0.1,) * 3, (2.0,) * 3),
    "nobody moved": ((1.0,) * 3, (1.0,) * 3),
    "half of AdamW's never": ((0.1,) * 4, (0.1, 0.1, 0.3, 0.3)),
    "half of AdamW's failed": ((0.1,) * 4, (0.2, 0.2, math.inf, math.inf)),
}


@pytest.mark.parametrize("name", FINALS)
@pytest.mark.filterwarnings("error")
def test_a_summary_is_drawn_whenever_the_target_is_met(name):
    esgd, adamw = FINALS[name]
    found = made(esgd, adamw, (1.0,) * len(esgd))
    file = io.BytesIO()
    summary([found], [EVEN]).savefig(file)
    assert file.getvalue()
