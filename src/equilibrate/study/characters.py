"""A small transformer that reads generated text letter by letter: a task for matrix methods.

The text comes from a seeded source: words of an invented vocabulary, each drawn by the one before
it, with commas and full stops between them. An instance is another vocabulary and another text.
"""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from equilibrate.study.problem import Problem

LETTERS = "abcdefghijklmnopqrstuvwxyz ,."
CONTEXT = 64
_WORDS, _FOLLOWERS = 200, 6
_SEQUENCES, _BATCH = 2000, 50
_WIDTH, _HEADS, _LAYERS = 64, 4, 2


def text(length: int, instance: int = 0) -> str:
    """Return so many letters of a source.

    Example:
        >>> text(24, instance=0) == text(30, instance=0)[:24]
        True
        >>> set(text(1000)) <= set(LETTERS)
        True
    """
    generator = torch.Generator().manual_seed(instance)
    words = [_word(generator) for _ in range(_WORDS)]
    followers = torch.randint(_WORDS, (_WORDS, _FOLLOWERS), generator=generator)
    pieces, size, word = [], 0, 0
    while size < length:
        piece = words[word] + _pause(generator)
        pieces.append(piece)
        size += len(piece)
        word = int(followers[word, _draw(generator, _FOLLOWERS)])
    return "".join(pieces)[:length]


class Block(nn.Module):
    """Causal attention and two dense layers, each normalised first and added to its input."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(_WIDTH), nn.LayerNorm(_WIDTH)
        self.mix = nn.Linear(_WIDTH, 3 * _WIDTH, bias=False)
        self.out = nn.Linear(_WIDTH, _WIDTH, bias=False)
        self.dense = nn.Sequential(
            nn.Linear(_WIDTH, 4 * _WIDTH), nn.GELU(), nn.Linear(4 * _WIDTH, _WIDTH)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Return the stream after this block."""
        x = x + self.out(self._attended(self.mix(self.before(x))))
        mixed: Tensor = x + self.dense(self.between(x))
        return mixed

    def _attended(self, mixed: Tensor) -> Tensor:
        # Written out: torch's fused attention has no second derivative.
        heads = mixed.reshape(*mixed.shape[:-1], 3, _HEADS, _WIDTH // _HEADS).movedim(-3, 0)
        query, key, value = (part.transpose(-2, -3) for part in heads)
        scores = query @ key.mT * query.shape[-1] ** -0.5
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).triu(1)
        weights = scores.masked_fill(later, -torch.inf).softmax(-1)
        return torch.flatten((weights @ value).transpose(-2, -3), -2)


class Reader(nn.Module):
    """Letters in, scores of the next letter out."""

    def __init__(self) -> None:
        super().__init__()
        self.letters = nn.Embedding(len(LETTERS), _WIDTH)
        self.places = nn.Parameter(0.02 * torch.randn(CONTEXT, _WIDTH))
        self.blocks = nn.Sequential(*(Block() for _ in range(_LAYERS)))
        self.last = nn.LayerNorm(_WIDTH)
        self.scores = nn.Linear(_WIDTH, len(LETTERS))
        nn.init.normal_(self.letters.weight, std=0.02)

    def forward(self, letters: Tensor) -> Tensor:
        """Return scores [cases, CONTEXT, letters]."""
        scores: Tensor = self.scores(self.last(self.blocks(self.letters(letters) + self.places)))
        return scores


def letter_entropy(scores: Tensor, targets: Tensor) -> Tensor:
    """Return the cross-entropy of the next letter, the mean over cases and places, in nats."""
    return cross_entropy(scores.flatten(0, -2), targets.flatten())


def characters_problem(instance: int = 0) -> Problem:
    """Return the problem of one source.

    Example:
        >>> problem = characters_problem()
        >>> problem.updates_per_epoch
        40
    """

    def data() -> tuple[Tensor, Tensor]:
        letters = text(_SEQUENCES * CONTEXT + 1, instance)
        numbers = torch.tensor([LETTERS.index(letter) for letter in letters])
        return numbers[:-1].view(-1, CONTEXT), numbers[1:].view(-1, CONTEXT)

    return Problem(
        f"characters #{instance}", lambda seed: Reader(), data, letter_entropy, None, _BATCH
    )


def _word(generator: torch.Generator) -> str:
    return "".join(LETTERS[_draw(generator, 26)] for _ in range(2 + _draw(generator, 6)))


def _pause(generator: torch.Generator) -> str:
    return (". ", ", ")[_draw(generator, 2)] if _draw(generator, 6) == 0 else " "


def _draw(generator: torch.Generator, count: int) -> int:
    return int(torch.randint(count, (), generator=generator))
