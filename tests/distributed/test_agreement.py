"""Ranks that do not agree say so, all of them, before a step is made; none is left waiting."""

import pytest
import torch
from torch import distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from equilibrate import ESGD
from tests.distributed.launching import errors, outcomes, run
from tests.distributed.test_ddp import batches, model_of

pytestmark = [pytest.mark.distributed, pytest.mark.xdist_group("ranks")]


def _loss(model, rank, step=0):
    x, y = batches()[step]
    return (model(x[rank::2]) - y[rank::2]).square().mean()


def _iteration(model, optimizer, rank, step=0, probe=True):
    loss = _loss(model, rank, step)
    if probe:
        optimizer.probe(loss)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()


def _other_weights(rank, world):
    model = model_of(seed=rank)
    _iteration(model, ESGD(model.parameters()), rank)


def _gradients_not_averaged(rank, world):
    model = model_of()
    _iteration(model, ESGD(model.parameters()), rank)


def _gradients_not_averaged_by_closure(rank, world):
    model = model_of()
    _closure_step(model, ESGD(model.parameters()), rank)


def _left_in_no_sync(rank, world):
    model = DistributedDataParallel(model_of())
    optimizer = ESGD(model.parameters(), probe_every=2)
    for step in range(8):
        if step < 4:
            _iteration(model, optimizer, rank, step)
        else:
            with model.no_sync():
                _iteration(model, optimizer, rank, step)


def _other_seeds(rank, world):
    model = DistributedDataParallel(model_of())
    _iteration(model, ESGD(model.parameters(), seed=rank), rank)


def _other_schedules(rank, world):
    model = DistributedDataParallel(model_of())
    _iteration(model, ESGD(model.parameters(), probe_every=5 + rank), rank)


def _a_later_probe_is_missing(rank, world):
    model = DistributedDataParallel(model_of())
    optimizer = ESGD(model.parameters(), probe_every=2)
    for step in range(5):
        _iteration(model, optimizer, rank, step, probe=rank == 0 or step < 2)


def _the_first_probe_is_missing(rank, world):
    """Without DDP the other rank comes to `step`, where it meets the one that waits in `probe`."""
    model = model_of()
    _iteration(model, ESGD(model.parameters()), rank, probe=rank == 0)


def _a_probe_against_a_closure(rank, world):
    model = model_of()
    optimizer = ESGD(model.parameters())
    loss = _loss(model, rank)
    if rank == 0:
        optimizer.probe(loss)
    else:
        optimizer.step(lambda: loss.backward() or loss)


def _calibrated_unequally(rank, world):
    model = DistributedDataParallel(model_of())
    optimizer = ESGD(model.parameters())
    optimizer.calibrate(_loss(model, rank, step) for step in range(3 + rank))


def _observed_when_not_due(rank, world):
    model = DistributedDataParallel(model_of())
    optimizer = ESGD(model.parameters())
    _iteration(model, optimizer, rank)
    ones = [torch.ones_like(p) for p in model.parameters()]
    optimizer.observe(ones, ones)


def _closure_step(model, optimizer, rank):
    def closure():
        optimizer.zero_grad()
        loss = _loss(model, rank)
        loss.backward()
        return loss

    optimizer.step(closure)


def _zero_redundancy(rank, world):
    model = DistributedDataParallel(model_of())
    shared_out = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=ESGD, lr=0.01)
    _closure_step(model, shared_out, rank)


def _first_generation_fsdp(rank, world):
    model = FullyShardedDataParallel(model_of(), device_id=torch.device("cpu"))
    _closure_step(model, ESGD(model.parameters()), rank)


def _first_generation_fsdp_by_parameter(rank, world):
    model = FullyShardedDataParallel(
        model_of(), device_id=torch.device("cpu"), use_orig_params=True
    )
    _closure_step(model, ESGD(model.parameters()), rank)


def _static_graph_with_no_sync_first(rank, world):
    model = DistributedDataParallel(model_of(), static_graph=True)
    optimizer = ESGD(model.parameters())
    with model.no_sync():
        loss = _loss(model, rank)
        optimizer.probe(loss)
        loss.backward()
    _iteration(model, optimizer, rank)


REFUSED = [
    (_other_weights, "parameters of the ranks differ"),
    (_gradients_not_averaged, "gradients of the ranks differ"),
    (_gradients_not_averaged_by_closure, "gradients of the ranks differ"),
    (_left_in_no_sync, "gradients of the ranks differ"),
    (_other_seeds, "optimizers differ"),
    (_other_schedules, "optimizers differ"),
    (_a_later_probe_is_missing, "rank 1 measured nothing while rank 0 did"),
    (_the_first_probe_is_missing, "rank 0 is in probe, rank 1 is in step"),
    (_a_probe_against_a_closure, r"rank 1 is in step\(closure\)"),
    (_calibrated_unequally, "rank 0 is in the end of calibrate, rank 1 is in calibrate"),
    (_observed_when_not_due, "optimizer.probe_due"),
    (_zero_redundancy, "ZeroRedundancyOptimizer are not"),
    (_first_generation_fsdp, "FullyShardedDataParallel is not"),
    (_first_generation_fsdp_by_parameter, "FullyShardedDataParallel and"),
    (_static_graph_with_no_sync_first, "expect_autograd_hooks_"),  # torch's own, without us too
]


@pytest.mark.parametrize(("scenario", "message"), REFUSED, ids=lambda x: getattr(x, "__name__", ""))
def test_every_rank_raises(scenario, message):
    for error in errors(scenario, 2):
        with pytest.raises(RuntimeError, match=message):
            raise RuntimeError(error)


def _the_first_probe_is_missing_under_ddp(rank, world):
    model = DistributedDataParallel(model_of())
    _iteration(model, ESGD(model.parameters()), rank, probe=rank == 0)


def test_a_rank_without_its_first_probe_is_waited_for_and_then_named():
    """Rank 1 is in DDP's averaging by then, so no collective could tell it; the wait is limited."""
    first, _ = errors(_the_first_probe_is_missing_under_ddp, 2, limit=3)
    assert "waited in vain for rank(s) [1]" in first


def _uneven_under_join(rank, world):
    model = DistributedDataParallel(model_of())
    optimizer = ESGD(model.parameters(), probe_every=2)
    with model.join():
        for step in range(5 if rank else 3):
            _iteration(model, optimizer, rank, step)


def test_a_rank_that_has_joined_early_is_waited_for_no_longer_than_the_group_waits():
    _, longer = errors(_uneven_under_join, 2, limit=3)
    assert "DistributedDataParallel.join does not" in longer


def _nothing_on_ordinary_steps(rank, world):
    """Count the collectives of our own in each of some steps, DDP's are not made in Python."""
    model = DistributedDataParallel(model_of())
    optimizer = ESGD(model.parameters(), probe_every=3)
    calls = []
    for name in ("all_reduce", "all_gather"):
        original = getattr(dist, name)

        def counted(*arguments, _original=original, **options):
            calls[-1] += 1
            return _original(*arguments, **options)

        setattr(dist, name, counted)
    for step in range(7):
        calls.append(0)
        _iteration(model, optimizer, rank, step)
    return calls


def test_ranks_talk_on_probing_steps_alone_and_little():
    found = run(_nothing_on_ordinary_steps, 2)
    # The warm-up: compare twice, say what is reached, average twenty products and the numbers of
    # losses. Later: compare, say what is present, average.
    assert found == [[24, 0, 0, 3, 0, 0, 3]] * 2


def _not_finite_on_rank_1(rank, world):
    model = DistributedDataParallel(model_of())
    optimizer = ESGD(model.parameters(), probe_every=1, warmup_probes=1)
    for step in range(3):
        _iteration(model, optimizer, rank, step)
    before = optimizer.diagonal()
    loss = _loss(model, rank, 3)
    optimizer.probe(loss * float("inf") if rank else loss)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    after = optimizer.diagonal()
    dropped = optimizer.param_groups[0]["dropped_probes"]
    _iteration(model, optimizer, rank, 4)
    return dropped, before, after, [p.detach() for p in model.parameters()]


@pytest.mark.filterwarnings("ignore")
def test_a_product_that_is_not_finite_on_one_rank_is_dropped_on_all():
    first, second = run(_not_finite_on_rank_1, 2)
    assert first[0] == second[0] == 1
    torch.testing.assert_close(first[1], first[2], rtol=0, atol=0)
    torch.testing.assert_close(first[2:], second[2:], rtol=0, atol=0)


def _overflow_under_a_scaler(rank, world, overflow):
    model = DistributedDataParallel(model_of())
    optimizer = ESGD(model.parameters(), probe_every=2, warmup_probes=1)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
    for step in range(8):
        for spoilt in ([True] if overflow and step == 4 else []) + [False]:
            loss = _loss(model, rank, step)
            optimizer.probe(loss)
            scaler.scale(loss * float("inf") if spoilt and rank == 1 else loss).backward()
            scaler.step(optimizer)
            scaler.update(2.0)
            optimizer.zero_grad()
    return [p.detach() for p in model.parameters()], optimizer.diagonal()


def test_an_overflow_on_one_rank_skips_the_step_on_all():
    disturbed = run(_overflow_under_a_scaler, 2, True)
    quiet = run(_overflow_under_a_scaler, 2, False)
    torch.testing.assert_close(disturbed[0], disturbed[1], rtol=0, atol=0)
    torch.testing.assert_close(disturbed[0], quiet[0], rtol=0, atol=0)


def _used_late_by_one_rank(rank, world):
    model = DistributedDataParallel(model_of(), find_unused_parameters=True)
    optimizer = ESGD(model.parameters(), probe_every=5)
    probes = []
    for step in range(7):
        x, y = batches()[step]
        both = rank == 0 and step >= 2
        loss = (model(x[rank::2], both) - y[rank::2]).square().mean()
        optimizer.probe(loss)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        late = optimizer.state[model.module.second.weight]
        probes.append(late["probes"])
    return probes, [p.detach() for p in model.parameters()], optimizer.diagonal()


def test_a_parameter_used_late_by_one_rank_is_measured_by_all_one_step_later():
    first, second = run(_used_late_by_one_rank, 2)
    assert first[0] == [0, 0, 0, 20, 20, 21, 21]
    torch.testing.assert_close(first, second, rtol=0, atol=0)


def _never_used(rank, world, options):
    model, idle = DistributedDataParallel(model_of()), torch.nn.Parameter(torch.ones(2))
    optimizer = ESGD([*model.parameters(), idle], probe_every=3, **options)
    due = []
    for step in range(9):
        due.append(optimizer.probe_due)
        loss = _loss(model, rank, step)
        optimizer.probe(loss)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return due


@pytest.mark.parametrize("options", [{}, {"capturable": True}], ids=str)
def test_a_parameter_that_no_rank_uses_does_not_make_every_step_probe(options):
    expected = [step % 3 == 0 for step in range(9)]
    assert run(_never_used, 2, options) == [expected, expected]


def _unequal_numbers_of_micro_batches(rank, world):
    model = DistributedDataParallel(model_of())
    optimizer = ESGD(model.parameters(), probe_every=2)
    count = 3 if rank else 2
    for step in range(6):
        for micro in range(count):
            model.require_backward_grad_sync = micro == count - 1
            loss = _loss(model, rank, step + micro) / count
            optimizer.probe(loss)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach() for p in model.parameters()], optimizer.diagonal()


def test_ranks_may_differ_in_their_number_of_micro_batches():
    first, second = run(_unequal_numbers_of_micro_batches, 2)
    torch.testing.assert_close(first, second, rtol=0, atol=0)


def _two_pairs(rank, world):
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    mine = pairs[rank // 2]
    model = DistributedDataParallel(model_of(seed=rank // 2), process_group=mine)
    optimizer = ESGD(model.parameters(), probe_every=2, process_group=mine)
    for step in range(5):
        _iteration(model, optimizer, rank % 2, step)
    return optimizer.diagonal()


def test_a_group_of_some_ranks_averages_among_itself():
    found = run(_two_pairs, 4)
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=0)
    torch.testing.assert_close(found[2], found[3], rtol=0, atol=0)
    assert not torch.equal(found[0][0], found[2][0])


def _not_a_member(rank, world):
    pair = dist.new_group([0])
    model = model_of()
    optimizer = ESGD(model.parameters(), process_group=pair)
    _iteration(model, optimizer, rank)


def test_a_rank_outside_the_given_group_is_refused():
    (fine, _), (refused, error) = outcomes(_not_a_member, 2)
    assert fine
    assert not refused
    assert "not a member" in error


def _calibrated(rank, world):
    model = DistributedDataParallel(model_of())
    optimizer = ESGD(model.parameters())
    folded = optimizer.calibrate(_loss(model, rank, step) for step in range(20))
    return folded, optimizer.diagonal()


def test_calibrate_averages_over_ranks():
    found = run(_calibrated, 2)
    model = model_of()
    alone = ESGD(model.parameters())
    alone.calibrate((_loss(model, 0, s) + _loss(model, 1, s)) / 2 for s in range(20))
    for folded, diagonal in found:
        assert folded == 20
        torch.testing.assert_close(diagonal, alone.diagonal(), rtol=1e-9, atol=1e-12)


def _built_before_wrapping(rank, world):
    model = model_of(seed=rank)
    optimizer = ESGD(model.parameters())
    _iteration(DistributedDataParallel(model), optimizer, rank)
    return optimizer.diagonal()


def test_the_optimizer_may_be_built_before_the_model_is_wrapped():
    first, second = run(_built_before_wrapping, 2)
    torch.testing.assert_close(first, second, rtol=0, atol=0)
