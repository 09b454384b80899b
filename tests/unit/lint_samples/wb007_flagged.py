import torch
from torch import nn


class DFALinear(nn.Linear):
    def __init__(self, wide, narrow, classes):
        super().__init__(wide, narrow)
        self.B = torch.randn(classes, narrow) / classes**0.5  # flagged


class Net(nn.Module):
    def __init__(self, widths):
        super().__init__()
        self.feedback = [torch.randn(10, width) for width in widths]  # flagged
        self.register_buffer("feedback_out", torch.rand(10, 10), persistent=False)  # flagged


def train(model, widths, file):
    feedback = [torch.randn(10, width).to("cuda") for width in widths]
    model.fit(feedback)
    torch.save(model.state_dict(), file)  # flagged
