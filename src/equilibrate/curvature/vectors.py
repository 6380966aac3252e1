"""Random probe vectors as a counter-based function: v = f(seed, probe, parameter, element).

Nothing is stored and nothing is drawn in sequence. Any element of any vector can be computed alone,
so a shard draws exactly its part of the whole, all ranks agree without communication, a stack of
trials draws what each trial alone would draw, and torch's global generator is never read or moved.

The counter is mixed by the finaliser of SplitMix64 (Steele, Lea & Flood 2014) with the constants
of Stafford's variant 13. Signs take one bit each, so that one mixed word serves 64 elements, and
cost a fraction of `torch.randn`; normals take one word for two elements (Box & Muller 1958).
`benchmarks/drawing.py` measures both.
"""

import math
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Literal, get_args

import torch
from torch import Tensor

Distribution = Literal["gaussian", "rademacher"]
DISTRIBUTIONS: tuple[str, ...] = get_args(Distribution)

_GOLDEN = -7046029254386353131  # 2^64 / golden ratio, as a signed 64-bit integer
_MIX_1 = -4658895280553007687
_MIX_2 = -7723592293110705685
_LOW_32_BITS = 0xFFFFFFFF
_SIGN_BIT_32 = -(2**31)
_FLOAT_ONE_BITS = 0x3F800000  # the float32 number 1.0; with the sign bit set, -1.0
SIGNS_PER_WORD = 64
NORMALS_PER_WORD = 2


Words = Any  # a Python integer or an integer tensor: the same arithmetic serves both


def _wrap(words: Words) -> Words:
    """Keep a Python integer within 64 bits, signed, as torch's own integers are."""
    if isinstance(words, Tensor):
        return words
    return (words + 2**63) % 2**64 - 2**63


def _shift(words: Words, bits: int) -> Words:
    """Shift right with zeros: the plain shift of signed integers copies the sign."""
    return (words >> bits) & ((1 << (64 - bits)) - 1)


def _mix(words: Words) -> Words:
    """Scramble 64-bit integers so that neighbouring counters give unrelated words."""
    words = _wrap((words ^ _shift(words, 30)) * _MIX_1)
    words = _wrap((words ^ _shift(words, 27)) * _MIX_2)
    return words ^ _shift(words, 31)


def _key(*ingredients: int | Tensor) -> int | Tensor:
    """Fold what names a vector into one 64-bit key, one ingredient after the other."""
    key: int | Tensor = 0
    for ingredient in ingredients:
        key = _mix(_wrap(key + _wrap((ingredient + 1) * _GOLDEN)))
    return key


def _words(key: int | Tensor, start: int, stop: int, device: torch.device | str) -> Tensor:
    """Return the mixed words number start..stop-1 of the vector named by `key`."""
    counter = torch.arange(start, stop, device=device)
    words: Tensor = (key.unsqueeze(-1) if isinstance(key, Tensor) else key) + counter * _GOLDEN
    mixed: Tensor = _mix(words)
    return mixed


def _signs(key: int | Tensor, start: int, stop: int, device: torch.device | str) -> Tensor:
    """Return elements start..stop-1 as +-1, each a bit moved to the sign of the number one."""
    first = start // SIGNS_PER_WORD
    signs = _spread(_words(key, first, -(-stop // SIGNS_PER_WORD), device))
    offset = start - first * SIGNS_PER_WORD
    return signs[..., offset : offset + stop - start]


def _spread(words: Tensor) -> Tensor:
    """Return the 64 signs of every word, in float32."""
    halves = words.view(torch.int32)
    position = torch.arange(32, device=words.device, dtype=torch.int32)
    bits = halves.unsqueeze(-1) << position
    signs = bits.bitwise_and_(_SIGN_BIT_32).bitwise_or_(_FLOAT_ONE_BITS).view(torch.float32)
    return signs.flatten(-2)


def draw_signs_together(
    likes: Sequence[Tensor], numbers: Sequence[int], *, seed: int, probe: int
) -> list[Tensor]:
    """Draw the signs of many parameters at once: what starting an operation costs is paid once.

    The same numbers as `draw_like` draws for each parameter, which has this number.

    Example:
        >>> likes = [torch.zeros(70), torch.zeros(2, 3)]
        >>> together = draw_signs_together(likes, [3, 5], seed=1, probe=0)
        >>> alone = draw_like("rademacher", likes[1], seed=1, probe=0, parameter=5)
        >>> bool((together[1] == alone).all())
        True
    """
    counts = [-(-like.numel() // SIGNS_PER_WORD) for like in likes]
    starts = [0, *accumulate(counts)]
    # Words are counted through; each parameter's key makes up for where its words begin.
    keys = _key(seed, probe, torch.tensor(numbers)) - torch.tensor(starts[:-1]) * _GOLDEN
    own = torch.repeat_interleave(keys, torch.tensor(counts))
    signs = _spread(_mix(own.add_(torch.arange(starts[-1]).mul_(_GOLDEN))))
    parts = signs.split_with_sizes([SIGNS_PER_WORD * count for count in counts])
    return [_cut(part, like) for part, like in zip(parts, likes, strict=True)]


def _cut(signs: Tensor, like: Tensor) -> Tensor:
    """Return the first signs in the shape and the dtype of a parameter."""
    held = like.numel()
    own = signs if len(signs) == held else signs[:held]
    return own.view(like.shape).to(like.dtype)


def vector_words(seed: Tensor, probe: Tensor, parameter: Tensor, number: Tensor) -> Tensor:
    """Return the words number `number` of the vectors named by the rest, broadcast.

    With `signs_of` or `normals_of` they are the elements that `draw_elements` gives, for many
    parameters at once.
    """
    words: Tensor = _mix(_key(seed, probe, parameter) + number * _GOLDEN)
    return words


def signs_of(words: Tensor) -> Tensor:
    """Return the signs held by words (P, W), as float32 (P, 64 W).

    Example:
        >>> one = torch.tensor([1])
        >>> words = vector_words(one, 0 * one, 3 * one, torch.arange(2)).unsqueeze(0)
        >>> whole = draw_elements("rademacher", 0, 128, seed=1, probe=0, parameter=3)
        >>> bool((signs_of(words)[0] == whole).all())
        True
    """
    halves = words.view(torch.int32).unsqueeze(-1)
    bit = (halves >> (31 - torch.arange(32, device=words.device, dtype=torch.int32))) & 1
    return torch.where(bit == 0, 1.0, -1.0).flatten(1)


def normals_of(words: Tensor) -> Tensor:
    """Return the standard normals held by words (..., W), two in each, as float32 (..., 2 W).

    Example:
        >>> one = torch.tensor([1])
        >>> words = vector_words(one, 0 * one, 3 * one, torch.arange(4))
        >>> whole = draw_elements("gaussian", 0, 8, seed=1, probe=0, parameter=3)
        >>> bool((normals_of(words) == whole).all())
        True
    """
    # Half a unit is added so that the logarithm never sees zero.
    radius = ((words & _LOW_32_BITS).float() + 0.5).mul_(2.0**-32).log_().mul_(-2).sqrt_()
    angle = (words >> 32).float().mul_(math.pi * 2.0**-31)
    pairs = torch.stack((radius * angle.cos(), radius * angle.sin()), -1)
    return pairs.flatten(-2)


def _normals(key: int | Tensor, start: int, stop: int, device: torch.device | str) -> Tensor:
    """Return elements start..stop-1 as standard normals."""
    first = start // NORMALS_PER_WORD
    normals = normals_of(_words(key, first, -(-stop // NORMALS_PER_WORD), device))
    offset = start - first * NORMALS_PER_WORD
    return normals[..., offset : offset + stop - start]


_DRAW: dict[str, Callable[[int | Tensor, int, int, torch.device | str], Tensor]] = {
    "rademacher": _signs,
    "gaussian": _normals,
}


def draw_elements(
    distribution: Distribution,
    start: int,
    stop: int,
    *,
    seed: int | Tensor,
    probe: int | Tensor,
    parameter: int,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Draw elements `start` to `stop` (row-major) of one parameter's probe vector, in float32.

    Seeds or probe numbers given as integer tensors of shape (P,) draw the vectors of P trials at
    once, as a tensor of shape (P, stop - start).

    Example:
        >>> whole = draw_elements("rademacher", 0, 100, seed=1, probe=0, parameter=3)
        >>> part = draw_elements("rademacher", 37, 81, seed=1, probe=0, parameter=3)
        >>> bool((whole[37:81] == part).all())
        True
    """
    if distribution not in _DRAW:
        raise ValueError(
            f"Invalid distribution: {distribution!r}. It must be one of {DISTRIBUTIONS}."
        )
    return _DRAW[distribution](_key(seed, probe, parameter), start, stop, device)


def draw(
    distribution: Distribution,
    parameters: Sequence[Tensor],
    *,
    seed: int = 0,
    probe: int = 0,
) -> list[Tensor]:
    """Draw one probe vector jointly over all parameters: E[v] = 0, E[v v^T] = I.

    `distribution` is "gaussian", as in the paper's Algorithm 1, or "rademacher" (signs). Each part
    has its parameter's shape, dtype and device. The values do not depend on the dtype (beyond its
    rounding; signs are exact in all of them) nor, for signs, on the device.

    Example:
        >>> draw("rademacher", [torch.zeros(4)], seed=0, probe=0)[0].abs()
        tensor([1., 1., 1., 1.])
    """
    return [
        draw_like(distribution, p, seed=seed, probe=probe, parameter=i)
        for i, p in enumerate(parameters)
    ]


def draw_like(
    distribution: Distribution, like: Tensor, *, seed: int, probe: int, parameter: int
) -> Tensor:
    """Draw one parameter's part of a probe vector, with that parameter's shape and dtype."""
    flat = draw_elements(
        distribution,
        0,
        like.numel(),
        seed=seed,
        probe=probe,
        parameter=parameter,
        device=like.device,
    )
    return flat.view(like.shape).to(like.dtype)
