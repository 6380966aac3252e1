"""Every fast update is the reference: cases (dtypes, layouts, sizes) times settings."""

from functools import partial

import pytest
import torch

from equilibrate.kernels import cpp
from equilibrate.rules import foreach, fused, on_device, reference

DTYPES = [torch.float32, torch.float64, torch.bfloat16]


def _contiguous(shape, dtype):
    return torch.randn(shape, dtype=torch.float64).to(dtype)


def _channels_last(shape, dtype):
    return _contiguous(shape, dtype).to(memory_format=torch.channels_last)


def _transposed(shape, dtype):
    return _contiguous((*shape[:-2], shape[-1], shape[-2]), dtype).mT


def _strided(shape, dtype):
    return _contiguous((*shape[:-1], 2 * shape[-1]), dtype)[..., ::2]


LAYOUTS = {
    "contiguous": [(_contiguous, (3, 4)), (_contiguous, (5,)), (_contiguous, ())],
    "channels last": [(_channels_last, (2, 3, 4, 5)), (_contiguous, (7,))],
    "transposed": [(_transposed, (6, 4)), (_transposed, (2, 3, 4))],
    "strided": [(_strided, (6, 4)), (_strided, (9,))],
    "empty": [(_contiguous, (0,)), (_contiguous, (3, 0, 2)), (_contiguous, (2,))],
    "all empty": [(_contiguous, (0,))],
    "a block and more": [(_contiguous, (4096,)), (_contiguous, (5000,)), (_contiguous, (1,))],
    "parts for threads": [(_contiguous, (2, 32768)), (_contiguous, (65537,))],
}
SETTINGS = {
    "plain": {},
    "weight decay": {"weight_decay": 0.2, "maximize": True},
    "momentum": {"momentum": 0.9},
    "Nesterov": {"momentum": 0.9, "nesterov": True, "weight_decay": 0.2},
    "limit": {"update_limit": 0.5},
    "limit and Nesterov": {"momentum": 0.9, "nesterov": True, "update_limit": 0.5},
    "limit and momentum": {"momentum": 0.9, "update_limit": 0.5},
    "scale": {"momentum": 0.9, "scale": 0.37},
    "scale and all": {"momentum": 0.9, "nesterov": True, "update_limit": 0.5, "scale": 0.37},
}
NONE = {"momentum": 0.0, "nesterov": False, "weight_decay": 0.0, "maximize": False}


class Case:
    """Tensors of one dtype in some layouts, with zeros in the diagonal, and numbers for each."""

    def __init__(self, layout, dtype, setting):
        torch.manual_seed(0)
        wide = torch.promote_types(dtype, torch.float32)
        made = LAYOUTS[layout]
        self.parameters = [make(shape, dtype) for make, shape in made]
        self.gradients = [make(shape, dtype) for make, shape in made]
        self.diagonals = [make(shape, wide).clamp_min(-0.3).add(0.3) for make, shape in made]
        self.settings = NONE | SETTINGS[setting]
        has_momentum = self.settings["momentum"] > 0
        self.buffers = [make(shape, wide) for make, shape in made] if has_momentum else None
        self.damping = [(0.0, 0.3, 0.1)[i % 3] for i in range(len(made))]
        self.fill = [(0.0, 0.7)[i % 2] for i in range(len(made))]

    def run(self, rule, device="cpu", tensors=False):
        """Return what a rule makes of copies that keep their strides."""

        def copied(column):
            return [torch.empty_like(t, device=device).copy_(t) for t in column]

        own, buffers = copied(self.parameters), self.buffers and copied(self.buffers)
        numbers = {"lr": 0.1, "damping": self.damping, "fill": self.fill, **self.settings}
        if tensors:
            for name in ("lr", "damping", "fill", "momentum", "weight_decay"):
                value = torch.tensor(numbers[name], dtype=torch.float64, device=device)
                needed = name in ("lr", "damping", "fill") or numbers[name] > 0
                numbers[name] = value if needed else None
            if "scale" in numbers:
                numbers["scale"] = torch.tensor(0.37, dtype=torch.float64, device=device)
        rule(own, copied(self.gradients), copied(self.diagonals), buffers, **numbers)
        return [t.cpu() for t in own + (buffers or [])]

    def squares(self, rule, device="cpu", tensors=False):
        """Return the sums that a rule finds."""
        columns = [[t.to(device) for t in column] for column in (self.gradients, self.diagonals)]
        damping, fill = self.damping, self.fill
        if tensors:
            damping, fill = (
                torch.tensor(c, dtype=torch.float64, device=device) for c in (damping, fill)
            )
        limit = self.settings.get("update_limit")
        return rule(*columns, damping=damping, fill=fill, update_limit=limit).cpu()


def assert_equal(found, expected, dtype):
    """Equal up to roundings: one result is rounded up to four times on its way, each time a half.

    In bfloat16 the reference rounds the shrunken parameter as well. u may be as large as g / 0.
    """
    eps = torch.finfo(dtype).eps
    for f, e in zip(found, expected, strict=True):
        assert f.dtype == e.dtype
        assert f.stride() == e.stride()
        size = float(e.double().abs().max()) if e.numel() else 0.0
        torch.testing.assert_close(f.double(), e.double(), rtol=4 * eps, atol=4 * eps * size)


over_cases = pytest.mark.parametrize("dtype", DTYPES, ids=str)
over_layouts = pytest.mark.parametrize("layout", LAYOUTS)
over_settings = pytest.mark.parametrize("setting", SETTINGS)


@over_settings
@over_layouts
@over_cases
def test_foreach_and_on_device_are_the_reference(dtype, layout, setting):
    case = Case(layout, dtype, setting)
    expected = case.run(reference.step)
    assert_equal(case.run(foreach.step), expected, dtype)
    assert_equal(case.run(on_device.step, tensors=True), expected, dtype)


def assert_sums(found, expected, dtype):
    """Equal up to the roundings of u, each at most two of the wider type that D is in."""
    assert found.dtype == torch.float64
    eps = torch.finfo(torch.promote_types(dtype, torch.float32)).eps
    torch.testing.assert_close(found, expected, rtol=8 * eps, atol=0)


over_limits = pytest.mark.parametrize("setting", ["plain", "limit"])


@over_limits
@over_layouts
@over_cases
def test_the_size_of_an_update_is_that_of_the_reference(dtype, layout, setting):
    case = Case(layout, dtype, setting)
    expected = case.squares(reference.squares)
    assert_sums(case.squares(foreach.squares), expected, dtype)
    assert_sums(case.squares(on_device.squares, tensors=True), expected, dtype)


@pytest.mark.parametrize("size", [1e-30, 1e30])
def test_the_size_of_an_update_neither_overflows_nor_vanishes(size):
    case = Case("contiguous", torch.float32, "plain")
    plain = case.squares(reference.squares)
    case.gradients = [size * g for g in case.gradients]
    for rule, tensors in ((reference, False), (foreach, False), (on_device, True), (fused, True)):
        found = case.squares(rule.squares, tensors=tensors) / size**2
        assert_sums(found, plain, torch.float32)


@pytest.fixture
def traced(monkeypatch):
    """Compile as for real, but run torch's own kernels: building C++ takes seconds a case."""
    monkeypatch.setattr(fused, "compiled", partial(fused.compiled, "aot_eager"))
    yield
    torch._dynamo.reset()


@over_layouts
@over_cases
def test_the_compiled_update_is_the_reference(dtype, layout, traced):
    case = Case(layout, dtype, "scale and all")
    assert_equal(case.run(fused.step, tensors=True), case.run(reference.step), dtype)
    found = case.squares(fused.squares, tensors=True)
    assert_sums(found, case.squares(reference.squares), dtype)


@over_settings
@over_layouts
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("threads", [1, 2])
def test_the_update_in_cpp_is_the_reference(threads, dtype, layout, setting, monkeypatch, traced):
    """Built once for all cases; a tensor in no order of its own is left to torch."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    case = Case(layout, dtype, setting)
    assert_equal(case.run(fused.step, tensors=True), case.run(reference.step), dtype)
    sums = case.squares(fused.squares, tensors=True)
    assert_sums(sums, case.squares(reference.squares), dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_cpp_takes_what_lies_in_one_order(dtype, monkeypatch, traced):
    calls, case = [], Case("channels last", dtype, "plain")
    monkeypatch.setattr(cpp, "step", lambda p, *others, **settings: calls.append(len(p)))
    case.run(fused.step, tensors=True)
    assert calls == ([] if dtype == torch.bfloat16 else [2])


@pytest.mark.slow
def test_sums_in_cpp_do_not_depend_on_the_threads(monkeypatch):
    torch.manual_seed(0)
    columns = [[torch.randn(300_000).abs() for _ in range(2)] for _ in range(2)]
    none = torch.zeros(2, dtype=torch.float64)
    found = []
    for threads in (1, 2, 3, 8, 8, 8):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        found.append(cpp.squares(*columns, damping=none, fill=none).tolist())
    assert all(each == found[0] for each in found)


@pytest.mark.parametrize("layout", ["a block and more", "channels last"])
def test_the_update_built_by_torch_is_the_reference(layout):
    case = Case(layout, torch.bfloat16, "scale and all")
    found = case.run(fused.step, tensors=True)
    assert_equal(found, case.run(reference.step), torch.bfloat16)
    sums = case.squares(fused.squares, tensors=True)
    assert_sums(sums, case.squares(reference.squares), torch.bfloat16)


class Kernels:
    """Stands for the Triton kernels: checks what it is given, notes it, and runs the plain way."""

    def __init__(self):
        self.calls = []

    def step(self, parameters, gradients, diagonals, buffers, steps=None, places=None, **settings):
        others = [] if buffers is None else [buffers]
        self._check(parameters, gradients, diagonals, *others)
        self.calls.append(len(parameters))
        if steps is not None:
            assert len(steps) == len(parameters)
            steps.add_(1)
        on_device.step(parameters, gradients, diagonals, buffers, **settings)

    def squares(self, gradients, diagonals, places=None, **settings):
        self._check(gradients, diagonals)
        return on_device.squares(gradients, diagonals, **settings)

    def _check(self, *columns):
        for column in columns:
            assert len({t.dtype for t in column}) == 1
        for row in zip(*columns, strict=True):
            assert row[0].numel()
            assert fused.in_one_order(row)


TAKEN = {"contiguous": [3], "channels last": [2], "empty": [1], "all empty": []}


@over_layouts
@over_cases
def test_the_kernel_is_given_what_it_can_take(dtype, layout, monkeypatch):
    kernels, case = Kernels(), Case(layout, dtype, "Nesterov")
    monkeypatch.setattr(fused.capture, "runs_kernels", lambda device: True)
    monkeypatch.setattr(fused, "triton_kernels", lambda: kernels)
    assert_equal(case.run(fused.step, tensors=True), case.run(reference.step), dtype)
    sums = case.squares(fused.squares, tensors=True)
    assert_sums(sums, case.squares(reference.squares), dtype)
    assert kernels.calls == TAKEN.get(layout, kernels.calls)
    steps = torch.arange(float(len(case.parameters)))
    case.run(partial(fused.step, steps=steps), tensors=True)
    assert steps.tolist() == [1.0 + i for i in range(len(steps))]  # once, in however many launches


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
@over_settings
@over_layouts
@over_cases
def test_the_kernel_is_the_reference(dtype, layout, setting):
    case = Case(layout, dtype, setting)
    found = case.run(fused.step, device="cuda", tensors=True)
    assert_equal(found, case.run(reference.step), dtype)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")
@over_limits
@over_layouts
@over_cases
def test_the_kernel_finds_the_size_of_the_reference(dtype, layout, setting):
    case = Case(layout, dtype, setting)
    expected = case.squares(reference.squares)
    assert_sums(case.squares(fused.squares, device="cuda", tensors=True), expected, dtype)
    assert_sums(case.squares(foreach.squares, device="cuda"), expected, dtype)
