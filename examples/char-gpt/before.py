"""A character-level GPT whose blocks are trained by direct feedback alignment: every token's error goes to every block."""

import os
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

SIZES = {
    "tiny": {"width": 16, "length": 32, "train": 512, "epochs": 2},
    "small": {"width": 64, "length": 64, "train": 4096, "epochs": 10},
}
SIZE = SIZES[os.environ.get("SIZE", "small")]
BLOCKS, HEADS, TEST, BATCH, SEEDS = 3, 2, 1024, 32, [0, 1, 2]
WORDS = "the a old young small king queen ship sea wind sings sees loves leaves and but while never".split()


def read_text():
    """The file that TEXT names, or random words."""
    if "TEXT" in os.environ:
        return Path(os.environ["TEXT"]).read_text()
    draws = torch.Generator().manual_seed(1)
    return " ".join(WORDS[i] for i in torch.randint(len(WORDS), (100_000,), generator=draws))


TEXT = read_text()
ALPHABET = sorted(set(TEXT))


def windows(count, first):
    """Windows that do not overlap, from the window `first` on, and the character that follows each."""
    length = SIZE["length"]
    start, end = first * length, (first + count) * length + 1
    codes = torch.tensor([ALPHABET.index(letter) for letter in TEXT[start:end]])
    return codes[:-1].reshape(count, length), codes[1:].reshape(count, length)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        width = SIZE["width"]
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, h):
        n, length, width = h.shape
        q, k, v = self.qkv(self.norm1(h)).reshape(n, length, 3, HEADS, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        h = h + self.out(mixed.transpose(1, 2).reshape(n, length, width))
        return h + self.mlp(self.norm2(h))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.letters = nn.Embedding(len(ALPHABET), SIZE["width"])
        self.places = nn.Parameter(0.02 * torch.randn(SIZE["length"], SIZE["width"]))
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.norm, self.head = nn.LayerNorm(SIZE["width"]), nn.Linear(SIZE["width"], len(ALPHABET))

    def states(self, x, detached=False):
        found = [self.letters(x) + self.places]
        for block in self.blocks:
            found.append(block(found[-1].detach() if detached else found[-1]))
        return found

    def logits(self, state):
        return self.head(self.norm(state))

    def forward(self, x):
        return self.logits(self.states(x)[-1])


def letter_losses(model, batch):
    x, y = batch
    return F.cross_entropy(model(x).transpose(1, 2), y, reduction="none")


def dfa_update(model, batch, feedback):
    """The gradients of direct feedback alignment: each state gets each token's error times a fixed matrix."""
    x, y = batch
    states = model.states(x, detached=True)
    logits = model.logits(states[-1].detach())
    F.cross_entropy(logits.transpose(1, 2), y).backward()
    error = (logits.softmax(-1) - F.one_hot(y, len(ALPHABET))).detach() / y.numel()
    for state, matrix in zip(states, feedback, strict=True):
        state.backward(error @ matrix)


def draw_feedback(seed):
    draws = torch.Generator().manual_seed(seed)
    return [torch.randn(len(ALPHABET), SIZE["width"], generator=draws) for _ in range(BLOCKS + 1)]


@torch.no_grad()
def test_loss(model):
    return letter_losses(model, windows(TEST, SIZE["train"])).mean().item()


def train(method, seed):
    torch.manual_seed(seed)
    model, feedback = GPT(), draw_feedback(seed)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    x, y = windows(SIZE["train"], 0)
    for _ in range(SIZE["epochs"]):
        for rows in torch.randperm(len(x)).split(BATCH):
            optimiser.zero_grad()
            if method == "dfa":
                dfa_update(model, (x[rows], y[rows]), feedback)
            else:
                letter_losses(model, (x[rows], y[rows])).mean().backward()
            optimiser.step()
    return test_loss(model)


if __name__ == "__main__":
    for method in ("dfa", "bp"):
        print(method, [train(method, seed) for seed in SEEDS])
