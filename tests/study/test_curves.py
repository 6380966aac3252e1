"""The CURVES-like images: the four fitted statistics, determinism, and the spline."""

import pytest
import torch
from torch import Tensor

from equilibrate.study import curves
from equilibrate.study.curves import curves_like_images, natural_spline


@pytest.fixture(scope="session")
def images() -> Tensor:
    return curves_like_images(20_000, seed=0)


@pytest.fixture(scope="session")
def wide(images: Tensor) -> Tensor:
    return images.double()


def entropy(target: Tensor, prediction: Tensor) -> float:
    pixels = torch.xlogy(target, prediction) + torch.xlogy(1 - target, 1 - prediction)
    return -pixels.sum(-1).mean().item()


def within_2_percent(value: float) -> object:
    return pytest.approx(value, rel=0.02)


def test_images_are_float32_in_the_unit_interval(images: Tensor) -> None:
    assert images.shape == (20_000, 784)
    assert images.dtype == torch.float32
    assert images.min() >= 0
    assert images.max() <= 1


def test_squared_error_of_the_mean_image(wide: Tensor) -> None:
    assert (wide - wide.mean(0)).square().sum(1).mean().item() == within_2_percent(16.89)


def test_cross_entropy_of_the_mean_image(wide: Tensor) -> None:
    assert entropy(wide.mean(0), wide.mean(0)) == within_2_percent(124.4)


def test_cross_entropy_floor(wide: Tensor) -> None:
    assert entropy(wide, wide) == within_2_percent(53.8)


def test_residual_after_18_principal_components(wide: Tensor) -> None:
    ascending = torch.linalg.eigvalsh(torch.cov(wide.T, correction=0))
    assert ascending[:-18].sum().item() == within_2_percent(5.90)


def test_a_seed_names_one_set(images: Tensor) -> None:
    with torch.device("meta"):  # a caller's default device changes nothing
        again = curves_like_images(250, seed=0)
    assert torch.equal(again, images[:250])
    assert not torch.equal(curves_like_images(250, seed=1), again)


@pytest.mark.parametrize("chunk", [1, 7, 1000])
def test_chunking_does_not_change_the_images(
    images: Tensor, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(curves, "_CHUNK", chunk)
    assert torch.equal(curves_like_images(250, seed=0), images[:250])


def test_the_global_generator_is_not_moved() -> None:
    before = torch.get_rng_state()
    curves_like_images(3)
    assert torch.equal(before, torch.get_rng_state())


def test_no_images_and_fewer() -> None:
    assert curves_like_images(0).shape == (0, 784)
    with pytest.raises(ValueError, match="got -1"):
        curves_like_images(-1)


def test_ink_on_a_pixel_centre_is_spread_by_the_kernel_of_the_blur() -> None:
    drop = torch.full((1, 1), 10.5, dtype=torch.float64)
    spread = curves._blurred(curves._deposit(drop, drop))[0, 9:12, 9:12]
    a = 0.359
    corner, side = a / 12, a / 6
    kernel = [[corner, side, corner], [side, 1 - a, side], [corner, side, corner]]
    torch.testing.assert_close(spread, torch.tensor(kernel, dtype=torch.float64))


def test_a_drop_between_pixels_is_shared_and_one_off_the_page_is_lost() -> None:
    x = torch.tensor([[10.75, -3.0]], dtype=torch.float64)
    y = torch.tensor([[5.5, 5.5]], dtype=torch.float64)
    ink = curves._deposit(x, y)
    assert (ink[0, 5, 10].item(), ink[0, 5, 11].item()) == (0.75, 0.25)
    assert ink.sum() == 1


def test_the_three_points_fill_their_square_and_keep_their_distance() -> None:
    ends = torch.tensor([[0.0] * 6, [1.0] * 6], dtype=torch.float64)
    knots_x, knots_y = curves._knots(ends)
    assert knots_x[0].tolist() == pytest.approx([3.96, 6.30, 8.64])
    assert knots_x[1].tolist() == pytest.approx([19.36, 21.70, 24.04])
    assert knots_y.tolist() == [pytest.approx([3.96] * 3), pytest.approx([24.04] * 3)]


def test_the_spline_is_natural_and_smooth() -> None:
    knots_x = torch.tensor([[4.0, 7.0, 20.0]], dtype=torch.float64)
    knots_y = torch.tensor([[5.0, 22.0, 9.0]], dtype=torch.float64)
    below_middle = torch.nextafter(knots_x[:, 1:2], torch.zeros(1, 1, dtype=torch.float64))
    x = torch.cat([knots_x, below_middle], dim=1).requires_grad_()
    y = natural_spline(knots_x, knots_y, x)
    (slope,) = torch.autograd.grad(y.sum(), x, create_graph=True)
    (bend,) = torch.autograd.grad(slope.sum(), x)
    torch.testing.assert_close(y[:, :3], knots_y)
    for values in (y, slope, bend):  # no jump where the two halves meet
        torch.testing.assert_close(values[:, 1], values[:, 3])
    torch.testing.assert_close(bend[:, [0, 2]], torch.zeros(1, 2, dtype=torch.float64))
