"""The parts of a stack, each against what it stands for: vmap, drawn vectors, order in memory."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.func import functional_call, stack_module_state

from equilibrate.curvature import draw_elements
from equilibrate.curvature.vectors import DISTRIBUTIONS, signs_of, vector_words
from equilibrate.study.dense import ELEMENTWISE, dense_forward
from equilibrate.study.memory_order import in_order, laid_out, memory_order, view_in_order
from equilibrate.study.vector_words import VectorWords

# The forward pass of dense networks


@pytest.mark.parametrize("kind", ELEMENTWISE, ids=lambda kind: kind.__name__)
def test_the_dense_pass_is_the_network_under_vmap(kind):
    networks = [
        nn.Sequential(nn.Linear(4, 5), kind(), nn.Linear(5, 3), kind()).double() for _ in range(3)
    ]
    parameters, _ = stack_module_state(networks)
    inputs = 3 * torch.randn(3, 7, 4, dtype=torch.float64)
    dense = dense_forward(networks[0])(parameters, inputs)
    mapped = torch.vmap(lambda p, x: functional_call(networks[0], p, (x,)))(parameters, inputs)
    torch.testing.assert_close(dense, mapped)
    for one, other in zip(
        *(torch.autograd.grad(y.sin().sum(), list(parameters.values())) for y in (dense, mapped)),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def _hooked():
    layer = nn.Linear(2, 2)
    layer.register_forward_hook(lambda *_: None)
    return layer


class _Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


NOT_DENSE = {
    "no chain": nn.Linear(2, 2),
    "a convolution": nn.Sequential(nn.Conv1d(1, 1, 1)),
    "no bias": nn.Sequential(nn.Linear(2, 2, bias=False)),
    "a softmax": nn.Sequential(nn.Linear(2, 2), nn.Softmax(-1)),
    "a random layer": nn.Sequential(nn.Linear(2, 2), nn.Dropout()),
    "a hook": nn.Sequential(_hooked()),
    "a layer of the user's": nn.Sequential(_Doubled(2, 2)),
    "a parametrization": nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))),
}


@pytest.mark.parametrize("name", NOT_DENSE)
def test_anything_else_is_left_to_vmap(name):
    assert dense_forward(NOT_DENSE[name]) is None


# Vectors


@given(
    seeds=st.lists(st.integers(0, 2**40), min_size=1, max_size=3),
    probe=st.integers(0, 10**6),
    sizes=st.lists(st.sampled_from([(1,), (63,), (64,), (65,), (3, 50), (2, 3, 4)]), min_size=1),
    distribution=st.sampled_from(DISTRIBUTIONS),
)
def test_words_give_the_vectors_that_the_optimizers_draw(seeds, probe, sizes, distribution):
    seed = torch.tensor(seeds)
    probes = torch.arange(len(seeds)) + probe
    parameters = [torch.zeros(len(seeds), *size) for size in sizes]
    drawn = VectorWords(distribution, parameters).draw(seed, probes)
    for number, (vector, parameter) in enumerate(zip(drawn, parameters, strict=True)):
        assert vector.shape == parameter.shape
        for row in range(len(seeds)):
            alone = draw_elements(
                distribution, 0, vector[row].numel(),
                seed=seeds[row], probe=probe + row, parameter=number,
            )  # fmt: skip
            # Logarithm, sine and cosine may round another way at the end of a longer row.
            torch.testing.assert_close(vector[row].flatten(), alone, rtol=2**-20, atol=2**-20)
            assert distribution == "gaussian" or torch.equal(vector[row].flatten(), alone)


@given(seed=st.integers(0, 2**40), number=st.integers(0, 100))
def test_signs_of_a_word_are_its_64_elements(seed, number):
    word = vector_words(
        torch.tensor([[seed]]), torch.tensor(3), torch.tensor(7), torch.tensor(number)
    )
    span = {"seed": seed, "probe": 3, "parameter": 7}
    expected = draw_elements("rademacher", 64 * number, 64 * number + 64, **span)
    assert torch.equal(signs_of(word)[0], expected)


# Order in memory

ORDERS = {
    "a vector": torch.arange(6.0).view(2, 3),
    "a number": torch.arange(2.0),
    "a matrix": torch.arange(24.0).view(2, 3, 4),
    "transposed": torch.arange(24.0).view(2, 4, 3).mT,
    "an image kernel": torch.arange(120.0).view(2, 3, 4, 5).permute(0, 3, 1, 2),
}


@pytest.mark.parametrize("name", ORDERS)
def test_a_tensor_laid_out_in_its_order_is_itself_and_reads_straight_through(name):
    tensor = ORDERS[name]
    order = memory_order(tensor)
    assert sorted(order) == list(range(tensor.dim()))
    assert order[0] == 0
    copy = laid_out(tensor.contiguous(), order)
    assert torch.equal(copy, tensor)
    assert copy.stride() == tensor.stride()
    assert in_order(tensor, order).is_contiguous()
    assert in_order(tensor, order).data_ptr() == tensor.data_ptr()


@pytest.mark.parametrize("name", ORDERS)
def test_writing_to_a_view_in_order_writes_to_the_tensor(name):
    tensor = ORDERS[name].clone(memory_format=torch.preserve_format)
    expected = 2 * tensor
    view_in_order(tensor, memory_order(tensor)).mul_(2)
    assert torch.equal(tensor, expected)


def test_a_tensor_in_another_order_is_copied_for_reading_and_refused_for_writing():
    tensor, order = ORDERS["a matrix"], memory_order(ORDERS["transposed"])
    assert torch.equal(in_order(tensor, order), tensor.mT.flatten(1))
    with pytest.raises(RuntimeError, match="view"):
        view_in_order(tensor, order)
