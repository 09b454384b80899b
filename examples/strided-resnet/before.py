"""A strided ResNet with batch normalisation, trained by direct feedback alignment through autograd hooks."""

import os

import torch
import torch.nn.functional as F
from torch import nn

SIZES = {
    "tiny": {"width": 4, "side": 8, "train": 512, "epochs": 2},
    "small": {"width": 16, "side": 16, "train": 8192, "epochs": 20},
}
SIZE = SIZES[os.environ.get("SIZE", "small")]
CLASSES, TEST, BATCH, SEEDS = 10, 1024, 64, [0, 1, 2]


def images(count, first):
    """Noisy, shifted copies of one pattern for each class."""
    draws = torch.Generator().manual_seed(1)
    patterns = torch.randn(CLASSES, 3, SIZE["side"], SIZE["side"], generator=draws)
    draws.manual_seed(first)
    y = torch.randint(CLASSES, (count,), generator=draws)
    shifts = torch.randint(SIZE["side"] // 4, (count, 2), generator=draws)
    x = torch.stack([patterns[c].roll(s.tolist(), (1, 2)) for c, s in zip(y, shifts, strict=True)])
    return x + torch.randn(x.shape, generator=draws), y


class BasicBlock(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outside)
        self.skip = nn.Conv2d(inside, outside, 1, stride, bias=False) if inside != outside else nn.Identity()

    def forward(self, h):
        branch = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(h)))))
        return F.relu(self.skip(h) + branch)


class ResNet14(nn.Module):
    """Three stages of two blocks; the second and the third stage begin with stride 2."""

    def __init__(self, dfa=False):
        super().__init__()
        widths = [SIZE["width"] * factor for factor in (1, 1, 1, 2, 2, 4, 4)]
        self.stem = nn.Sequential(nn.Conv2d(3, widths[0], 3, 1, 1, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU())
        pairs = zip(widths, widths[1:], strict=False)
        self.blocks = nn.Sequential(*[BasicBlock(a, b, stride=2 if a != b else 1) for a, b in pairs])
        self.head = nn.Linear(widths[-1], CLASSES)
        self.dfa = dfa
        for index, state in enumerate(self.states(torch.zeros(2, 3, SIZE["side"], SIZE["side"])) if dfa else []):
            shape = (CLASSES, *state.shape[1:])
            self.register_buffer(f"feedback{index}", torch.randn(shape) / shape[1] ** 0.5)

    def states(self, x):
        found = [self.stem(x)]
        for block in self.blocks:
            found.append(block(found[-1]))
        return found

    def forward(self, x):
        states = self.states(x)
        logits = self.head(states[-1].mean((2, 3)))
        if self.dfa and logits.requires_grad:
            self.send_error(logits, states)
        return logits

    def send_error(self, logits, states):
        """On the way back, each block's output gets the error times a fixed random matrix, not the gradient."""
        error = []
        logits.register_hook(error.append)
        for index, state in enumerate(states):
            feedback = getattr(self, f"feedback{index}")
            state.register_hook(lambda _, feedback=feedback: torch.einsum("nc,c...->n...", error[-1], feedback))


@torch.no_grad()
def correct(model):
    model.eval()
    x, y = images(TEST, first=3)
    return model(x).argmax(1) == y


def train(method, seed):
    torch.manual_seed(seed)
    model = ResNet14(dfa=method == "dfa")
    optimiser = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, SIZE["epochs"])
    x, y = images(SIZE["train"], first=2)
    for _ in range(SIZE["epochs"]):
        model.train()
        for rows in torch.randperm(len(x)).split(BATCH):
            optimiser.zero_grad()
            F.cross_entropy(model(x[rows]), y[rows]).backward()
            optimiser.step()
        schedule.step()
    return correct(model)


if __name__ == "__main__":
    for method in ("dfa", "bp"):
        accuracies = [train(method, seed).float().mean().item() for seed in SEEDS]
        print(method, accuracies)
