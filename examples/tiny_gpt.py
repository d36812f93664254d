"""A small GPT in plain torch, and real text to train it on that every Python brings along: the help on its own language."""

from __future__ import annotations

from collections.abc import Iterator
from pydoc_data.topics import topics

import torch
from torch import Tensor, nn
from torch.nn import functional

BLOCK = 64
VOCABULARY = 256


def attention_mask(length: int) -> Tensor:
    """What is added to the scores so that no byte sees those after it: `(length, length)` floats. This is what a far too long text fails on."""
    return torch.full((length, length), float("-inf")).triu(1)


class Attention(nn.Module):
    """Self-attention over `(batch, length, width)`, written out rather than fused so that it can be read."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.mix = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        batch, length, width = x.shape
        query, key, value = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.mix(x).chunk(3, dim=-1))
        scores = query @ key.transpose(-2, -1) / (width // self.heads) ** 0.5 + mask
        return self.out((scores.softmax(dim=-1) @ value).transpose(1, 2).reshape(batch, length, width))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.thinking = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x + self.attention(self.before_attention(x), mask)
        return x + self.thinking(x)


class TinyGPT(nn.Module):
    """Bytes in, the loss of predicting each next byte out. Positions repeat after a block, so a longer text is no error in itself."""

    def __init__(self, width: int = 64, heads: int = 4, layers: int = 2) -> None:
        super().__init__()
        self.token = nn.Embedding(VOCABULARY, width)
        self.position = nn.Embedding(BLOCK, width)
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(layers))
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, VOCABULARY))

    def forward(self, text: Tensor) -> Tensor:
        seen, wanted = text[:, :-1], text[:, 1:]
        mask = attention_mask(seen.shape[1])
        x = self.token(seen) + self.position(torch.arange(seen.shape[1]) % BLOCK)
        for layer in self.layers:
            x = layer(x, mask)
        return functional.cross_entropy(self.head(x).flatten(0, 1), wanted.flatten())


def corpus() -> Tensor:
    """About half a megabyte of English as bytes."""
    return torch.frombuffer(bytearray("\n".join(topics.values()).encode()), dtype=torch.uint8).long()


def batches(size: int, steps: int, seed: int) -> Iterator[Tensor]:
    """`steps` batches of `(size, BLOCK + 1)` bytes from random places; another seed on each rank gives it other places."""
    text = corpus()
    chance = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        starts = torch.randint(len(text) - BLOCK - 1, (size,), generator=chance)
        yield torch.stack([text[start : start + BLOCK + 1] for start in starts.tolist()])
