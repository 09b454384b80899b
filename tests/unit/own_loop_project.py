"""A researcher's project: a small network, direct feedback alignment written by hand, and a training function."""

import os

import torch
import torch.nn.functional as F
from torch import nn

import walkback as wb

EPOCHS = int(os.environ.get("PROJECT_EPOCHS", "2"))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(6, 16)
        self.stages = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(3))
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        h = self.stem(x)
        for block in self.stages:
            h = h + block(h)
        return self.head(h)


def data():
    draws = torch.Generator().manual_seed(0)
    answer = torch.randn(6, 4, generator=draws)
    x = torch.randn(512 + 256, 6, generator=draws)
    return x, (x @ answer).argmax(1)


def train_batches():
    x, y = data()
    return list(zip(x[:512].split(64), y[:512].split(64), strict=True))


def test_batches():
    x, y = data()
    return [(x[512:], y[512:])]


def draw_feedback(seed):
    draws = torch.Generator().manual_seed(seed)
    return [torch.randn(4, 16, generator=draws) for _ in range(4)]


def my_credit(seen, feedback):
    return [seen.error @ B.to(seen.error) for B in feedback]


def my_update(model, x, y, feedback, exact):
    if exact:
        F.cross_entropy(model(x), y).backward()
        return
    states = [model.stem(x)]
    for block in model.stages:
        inside = states[-1].detach()
        states.append(inside + block(inside))
    logits = model.head(states[-1].detach())
    F.cross_entropy(logits, y).backward()
    error = (logits.softmax(1) - F.one_hot(y, 4)).detach() / len(y)
    for state, matrix in zip(states, feedback, strict=True):
        state.backward(error @ matrix)


def train(job):
    model = Net()
    feedback = draw_feedback(job.seed)
    job.freeze(model.stages)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-2)
    for _ in job.epochs(EPOCHS, model, optimiser):
        for x, y in train_batches():
            optimiser.zero_grad()
            if job.method == "mine":
                my_update(model, x, y, feedback, exact=job.credit == "exact")
            else:
                F.cross_entropy(model(x), y).backward()
            optimiser.step()
    ((x, y),) = test_batches()
    return wb.Trained(model, correct=model(x).argmax(1) == y, feedback=feedback)


def never(job):
    raise AssertionError("trained")


AUDIT = {"eval_batches": test_batches, "build": Net, "credit": my_credit}
