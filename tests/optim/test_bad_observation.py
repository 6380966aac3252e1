"""What `observe` refuses: wrong shapes, missing products, other vectors, a probe beside it."""

from collections.abc import Callable

import pytest

from equilibrate import draw
from tests.optim.bad_input import BOTH, TRAINED, WARMUP, always_due, loss_of, network
from tests.optim.watching import parameters_of, same, unchanged

# name: what is observed after the first, right call; vectors and products; what the error says
BAD_OBSERVATIONS: dict[str, tuple[Callable[..., tuple[list, list]], str]] = {
    "too few vectors": (lambda v: (v[:-1], v), "each of the 4 parameters.*got 3 and 4"),
    "too few products": (lambda v: (v, v[:-1]), "got 4 and 3"),
    "too many": (lambda v: ([*v, v[0]], [*v, v[0]]), "got 5 and 5"),
    "a vector's shape": (lambda v: ([v[0].T, *v[1:]], v), r"parameter 0: .*expected \(4, 3\)"),
    "a product's shape": (lambda v: (v, [*v[:-1], v[0]]), r"parameter 3: .*expected \(1,\)"),
    "no product to a vector": (lambda v: (v, [None, *v[1:]]), "only one of.*parameter 0"),
    "other vectors": (lambda v: ([-a for a in v], v), "the same vectors for every micro-batch"),
    "vectors for fewer": (
        lambda v: ([None, *v[1:]], [None, *v[1:]]),
        "the same vectors for every micro-batch",
    ),
}


@BOTH
@TRAINED
@pytest.mark.parametrize("name", BAD_OBSERVATIONS)
def test_a_bad_observation_is_refused(name, kind, steps):
    make, words = BAD_OBSERVATIONS[name]
    optimizer = always_due(network(), steps=steps, kind=kind)
    vectors = draw("gaussian", parameters_of(optimizer))
    optimizer.observe(vectors, vectors)
    bad = make(vectors)
    with unchanged(optimizer), pytest.raises(ValueError, match=words):
        optimizer.observe(*bad)


def test_vectors_drawn_anew_into_the_same_tensors_are_refused():
    optimizer = always_due(network(), steps=2)
    vectors = draw("gaussian", parameters_of(optimizer))
    optimizer.observe(vectors, [v.clone() for v in vectors])
    pending = [total.clone() for total in optimizer._pending.sums.values()]
    for v in vectors:
        v.neg_()
    with pytest.raises(ValueError, match="the same vectors"):
        optimizer.observe(vectors, vectors)
    assert same(list(optimizer._pending.sums.values()), pending)


@WARMUP
def test_observing_and_probing_for_one_step_is_refused(warmup):
    model = network()
    optimizer = always_due(model, steps=2, warmup=warmup)
    vectors = draw("gaussian", parameters_of(optimizer))
    optimizer.probe(loss_of(model))
    with unchanged(optimizer), pytest.raises(ValueError, match="not with probe"):
        optimizer.observe(vectors, vectors)

    optimizer = always_due(model, steps=2, warmup=warmup)
    optimizer.observe(vectors, vectors)
    loss = loss_of(model)
    with unchanged(optimizer), pytest.raises((ValueError, RuntimeError), match="observe"):
        optimizer.probe(loss)
