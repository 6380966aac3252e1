"""Neural fields, decays and characters: what every instance is, and what a network does with it."""

from functools import partial

import pytest
import torch

from equilibrate.study.characters import LETTERS, Reader, characters_problem, text
from equilibrate.study.decays import Decays, decays_problem, seen
from equilibrate.study.fields.distance import outline, signed_distance
from equilibrate.study.fields.image import grid, image
from equilibrate.study.fields.networks import NETWORKS
from equilibrate.study.fields.problems import FIELDS, field_problem, image_error, psnr
from equilibrate.study.find import find_problem
from equilibrate.study.problems import BUILT_IN

MADE = {
    "image": lambda i: field_problem("image", 64, "sine", i),
    "distance": lambda i: field_problem("distance", 64, "relu", i),
    "decays": decays_problem,
    "decays-log": partial(decays_problem, logarithms=True),
    "decays-batches": partial(decays_problem, batch=50),
    "characters": characters_problem,
}


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_an_instance_is_one_thing_and_another_another(made):
    first, again, other = (made(i).cases[1] for i in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("made", MADE.values(), ids=MADE)
def test_generating_leaves_torchs_generator_alone(made):
    torch.manual_seed(5)
    before = torch.get_rng_state()
    _ = made(0).cases
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", FIELDS)
def test_fields_are_found_by_name(name):
    problem = find_problem(name, BUILT_IN)
    assert problem.name == f"{name} #0"


@pytest.mark.parametrize("network", NETWORKS)
def test_a_network_starts_tame(network):
    problem = field_problem("image", 64, network)
    output = problem.network(0)(problem.cases[0]).detach()
    assert output.shape == (4096, 1)
    assert float(output.std()) < 2  # neither dead nor wild: targets lie between -1 and 1
    assert float(output.std()) > 1e-3


def test_a_larger_picture_of_an_instance_holds_the_same_shapes():
    small, large = image(grid(64), 64, 3), image(grid(256), 256, 3)
    coarse = large.view(64, 4, 64, 4).mean((1, 3)).flatten()
    # Finer waves differ, shades and shapes do not: far from the correlation of two instances.
    assert float(torch.corrcoef(torch.stack([small.flatten(), coarse]))[0, 1]) > 0.3


def test_the_distance_has_slope_one_almost_everywhere():
    step = 1e-3
    places = grid(64).double()
    corners = outline(2).double()
    ahead = torch.tensor([step, 0.0], dtype=torch.float64)
    slopes = [
        (signed_distance(places + v, corners) - signed_distance(places - v, corners)) / (2 * step)
        for v in (ahead, ahead.flip(0))
    ]
    norms = torch.cat(slopes, 1).norm(dim=1)
    # One but near corners' bisectors and the outline's ridges, a few places in a hundred.
    assert float(((norms - 1).abs() < 1e-3).double().mean()) > 0.9


def test_the_distance_is_negative_inside_alone():
    corners = outline(0)
    assert float(signed_distance(torch.zeros(1, 2), corners)) < 0
    assert float(signed_distance(torch.ones(1, 2), corners)) > 0


def test_psnr_is_that_of_the_peak():
    black, white = torch.full((4, 1), -1.0), torch.full((4, 1), 1.0)
    assert psnr(float(image_error(black, white))) == 0.0


def test_the_true_rates_and_amounts_leave_no_error():
    problem = decays_problem(1)
    generator = torch.Generator().manual_seed(1)
    wrong = 0.3 * (2 * torch.rand(2, 7, generator=generator) - 1)
    rates, amounts = 10.0 ** (torch.arange(-3, 4) + wrong[0]), 10.0 ** wrong[1]
    assert torch.equal(seen(problem.cases[0], rates, amounts), problem.cases[1])
    start = Decays(generator)
    assert float(problem.loss(start(problem.cases[0]).detach(), problem.cases[1])) > 1e-3


def test_logarithms_start_from_the_same_path():
    plain, logs = (decays_problem(logarithms=chosen) for chosen in (False, True))
    times = plain.cases[0]
    # exp of a rounded logarithm, at a rate times a time of up to 1e7: only small ones count.
    torch.testing.assert_close(
        plain.network(3)(times), logs.network(3)(times), rtol=1e-4, atol=1e-4
    )


def test_a_letter_is_judged_by_those_before_it():
    torch.manual_seed(0)
    reader = Reader()
    letters = torch.randint(len(LETTERS), (1, 64))
    changed = letters.clone()
    changed[0, 40] = (changed[0, 40] + 1) % len(LETTERS)
    same = (reader(letters) == reader(changed)).all(-1)[0]
    assert bool(same[:40].all())
    assert not bool(same[40:].any())


def test_text_repeats_its_words():
    words = text(20_000, 3).replace(",", "").replace(".", "").split()
    assert len(set(words)) < 250  # of more than three thousand
