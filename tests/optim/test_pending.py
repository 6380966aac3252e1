"""What is pending: sums over the losses of a step, in the precision that curvature is kept in."""

import pytest
import torch

from equilibrate.optim.pending import Pending


@pytest.mark.parametrize("first", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("second", [torch.float32, torch.bfloat16])
def test_sums_are_wide_and_leave_what_came_alone(first, second):
    one, other = torch.zeros(2), torch.zeros(3)
    given = {one: torch.ones(2, dtype=first), other: torch.ones(3, dtype=first)}
    pending = Pending()
    pending.add([one, other], given)
    pending.add([one], {one: torch.full((2,), 2.0, dtype=second)})
    assert [s.tolist() for s in pending.sums.values()] == [[3.0, 3.0], [1.0, 1.0, 1.0]]
    assert all(s.dtype == torch.promote_types(first, torch.float32) for s in pending.sums.values())
    assert [g.tolist() for g in given.values()] == [[1.0, 1.0], [1.0, 1.0, 1.0]]


def test_it_holds_what_was_asked_for_in_any_order_and_no_more():
    one, other, third = (torch.zeros(1) for _ in range(3))
    pending = Pending()
    assert not pending.holds([one])
    pending.add([one, other], {})
    assert pending.holds([one, other])
    assert pending.holds([other, one])
    assert pending.holds([other])
    assert not pending.holds([one, third])
