"""An ordinary residual network whose layers are converted: the forward pass stays, the backward pass uses other weights."""

import os

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.grad import conv2d_input, conv2d_weight

import walkback as wb

SIZES = {
    "tiny": {"width": 4, "side": 8, "train": 512, "epochs": 2},
    "small": {"width": 16, "side": 16, "train": 8192, "epochs": 15},
}
SIZE = SIZES[os.environ.get("SIZE", "small")]
BLOCKS, CLASSES, TEST, BATCH, SEEDS = 3, 10, 1024, 64, [0, 1, 2]


def images(count, seed):
    """Noisy, shifted copies of one pattern for each class."""
    draws = torch.Generator().manual_seed(1)
    patterns = torch.randn(CLASSES, 3, SIZE["side"], SIZE["side"], generator=draws)
    draws.manual_seed(seed)
    y = torch.randint(CLASSES, (count,), generator=draws)
    shifts = torch.randint(SIZE["side"] // 4, (count, 2), generator=draws)
    x = torch.stack([patterns[c].roll(s.tolist(), (1, 2)) for c, s in zip(y, shifts, strict=True)])
    return x + torch.randn(x.shape, generator=draws), y


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, h):
        return F.relu(h + self.norm2(self.conv2(F.relu(self.norm1(self.conv1(h))))))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        width = SIZE["width"]
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU())
        self.blocks = nn.Sequential(*[Block(width) for _ in range(BLOCKS)])
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


class ConvolutionWithFeedback(torch.autograd.Function):
    @staticmethod
    def forward(context, x, weight, weight_backward, stride, padding):
        context.save_for_backward(x, weight, weight_backward)
        context.settings = stride, padding
        return F.conv2d(x, weight, None, stride, padding)

    @staticmethod
    def backward(context, error):
        x, weight, weight_backward = context.saved_tensors
        down = conv2d_input(x.shape, weight_backward, error, *context.settings)
        return down, conv2d_weight(x, weight.shape, error, *context.settings), None, None, None


class LinearWithFeedback(torch.autograd.Function):
    @staticmethod
    def forward(context, x, weight, weight_backward):
        context.save_for_backward(x, weight_backward)
        return x @ weight.T

    @staticmethod
    def backward(context, error):
        x, weight_backward = context.saved_tensors
        return error @ weight_backward, error.T @ x, None


class WithFeedback(nn.Module):
    """A layer whose errors go back through random weights (fa), or through the signs of its weights (usf)."""

    def __init__(self, layer, kind):
        super().__init__()
        self.layer, self.kind = layer, kind
        self.register_buffer("size", layer.weight.detach().std())
        self.register_buffer("weight_backward", torch.randn_like(layer.weight) * self.size)

    def forward(self, x):
        layer = self.layer
        back = self.weight_backward if self.kind == "fa" else layer.weight.sign() * self.size
        if isinstance(layer, nn.Linear):
            return LinearWithFeedback.apply(x, layer.weight, back) + layer.bias
        return ConvolutionWithFeedback.apply(x, layer.weight, back, layer.stride, layer.padding)


def convert(module, kind):
    """Replace every convolution and every Linear of a network."""
    for name, child in module.named_children():
        if isinstance(child, nn.Conv2d | nn.Linear):
            setattr(module, name, WithFeedback(child, kind))
        else:
            convert(child, kind)
    return module


def build(method):
    return ResNet() if method == "bp" else convert(ResNet(), method)


@torch.no_grad()
def correct(model):
    model.eval()
    x, y = images(TEST, seed=3)
    return model(x).argmax(1) == y


def train(job):
    model = build(job.method)
    job.freeze(model.blocks)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=5e-4)
    x, y = images(SIZE["train"], seed=2)
    for _ in job.epochs(SIZE["epochs"], model, optimiser):
        model.train()
        for rows in torch.randperm(len(x)).split(BATCH):
            optimiser.zero_grad()
            F.cross_entropy(model(x[rows]), y[rows]).backward()
            optimiser.step()
    return wb.Trained(model, correct=correct(model))


if __name__ == "__main__":
    print(wb.audit(train, methods=["fa", "usf", "bp"], seeds=SEEDS, eval_batches=[images(TEST, seed=3)], build=build,
                   out="audit", resume=True,
                   describe={"data": "noisy patterns", "recipe": f"SGD 0.05, {SIZE['epochs']} epochs"}))
