"""A GPT-2 of two layers and generated text for it."""

import torch
from torch import Tensor
from transformers import GPT2Config, GPT2LMHeadModel

WORDS, LENGTH = 32, 16


def make_model() -> GPT2LMHeadModel:
    """Return the same small random network each time."""
    torch.manual_seed(0)
    sizes = {"vocab_size": WORDS, "n_positions": LENGTH, "n_embd": 16, "n_layer": 2, "n_head": 2}
    without_dropout = {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0}
    config = GPT2Config(**sizes, **without_dropout, bos_token_id=None, eos_token_id=None)
    return GPT2LMHeadModel(config)


def make_text(cases: int = 160) -> list[dict[str, Tensor]]:
    """Return sequences in which each token is three more than the last, from random starts."""
    starts = torch.randint(WORDS, (cases, 1), generator=torch.Generator().manual_seed(1))
    return [{"input_ids": t, "labels": t} for t in (starts + 3 * torch.arange(LENGTH)) % WORDS]
