"""A residual MLP trained by direct feedback alignment whose feedback is learned, as a Lightning module with manual
optimisation: one optimiser for the weights, one for the feedback."""

import os

import lightning
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import walkback as wb

SIZES = {
    "tiny": {"width": 16, "train": 1024, "epochs": 2},
    "small": {"width": 64, "train": 16384, "epochs": 20},
}
SIZE = SIZES[os.environ.get("SIZE", "small")]
INPUTS, BLOCKS, CLASSES, TEST, SEEDS = 8, 3, 4, 1024, [0, 1, 2]


def samples(count, seed):
    """The class is the largest of four products of neighbouring inputs."""
    draws = torch.Generator().manual_seed(seed)
    x = torch.randn(count, INPUTS, generator=draws)
    return x, (x[:, 0::2] * x[:, 1::2]).argmax(1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        width = SIZE["width"]
        self.net = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.Tanh())

    def forward(self, h):
        return h + self.net(h)


class LearnedFeedback(lightning.LightningModule):
    """Each state gets the error through its own feedback, which is learned: it moves as the weights it stands for would,
    and both decay (direct Kolen-Pollack)."""

    def __init__(self, method):
        super().__init__()
        self.automatic_optimization = False
        self.method = method
        self.stem = nn.Linear(INPUTS, SIZE["width"])
        self.blocks = nn.ModuleList(Block() for _ in range(BLOCKS))
        self.head = nn.Linear(SIZE["width"], CLASSES)
        self.feedback = nn.ParameterList(0.1 * torch.randn(CLASSES, SIZE["width"]) for _ in range(BLOCKS + 1))

    def states(self, x, detached=False):
        found = [self.stem(x)]
        for block in self.blocks:
            found.append(block(found[-1].detach() if detached else found[-1]))
        return found

    def forward(self, x):
        return self.head(self.states(x)[-1])

    def backward_passes(self, batch):
        x, y = batch
        states = self.states(x, detached=self.method == "dkp")
        if self.method == "bp":
            F.cross_entropy(self.head(states[-1]), y).backward()
            return
        logits = self.head(states[-1].detach())
        F.cross_entropy(logits, y).backward()
        error = (logits.softmax(1) - F.one_hot(y, CLASSES)).detach() / len(y)
        for state, feedback in zip(states, self.feedback, strict=True):
            state.backward(error @ feedback.detach())
            feedback.grad = error.T @ state.detach()

    def training_step(self, batch, _):
        for optimiser in self.optimizers():
            optimiser.zero_grad()
        self.backward_passes(batch)
        for optimiser in self.optimizers():
            optimiser.step()

    def configure_optimizers(self):
        weights = [*self.stem.parameters(), *self.blocks.parameters(), *self.head.parameters()]
        return [
            torch.optim.SGD(weights, lr=0.01, momentum=0.9, weight_decay=1e-3),
            torch.optim.SGD(self.feedback, lr=0.05, momentum=0.9, weight_decay=1e-3),
        ]


@torch.no_grad()
def correct(model):
    x, y = samples(TEST, seed=3)
    return model.cpu().eval()(x).argmax(1) == y


def credit(seen, feedback):
    return [seen.error @ matrix.to(seen.error) for matrix in feedback]


def update(model, batch):
    model.backward_passes(batch)


def train(job):
    model = LearnedFeedback(job.method)
    job.freeze(model.blocks)
    loader = DataLoader(TensorDataset(*samples(SIZE["train"], seed=2)), batch_size=64, shuffle=True)
    trainer = lightning.Trainer(
        max_epochs=SIZE["epochs"], logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False,
    )  # fmt: skip
    trainer.fit(model, loader)
    return wb.Trained(model, correct=correct(model), feedback=list(model.feedback))


if __name__ == "__main__":
    print(wb.audit(train, methods=["dkp", "bp"], seeds=SEEDS, eval_batches=[samples(TEST, seed=3)], build=LearnedFeedback,
                   credit=credit, update=update, out="audit", resume=True,
                   describe={"data": "largest of four products", "recipe": f"SGD 0.01, {SIZE['epochs']} epochs"}))
