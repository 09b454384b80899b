import torch
from torch import nn


class DFALinear(nn.Linear):
    def __init__(self, wide, narrow, classes):
        super().__init__(wide, narrow)
        self.B = nn.Parameter(torch.randn(classes, narrow), requires_grad=False)
        self.register_buffer("feedback", torch.randn(classes, narrow))


class Late(nn.Module):
    def __init__(self):
        super().__init__()
        feedback = torch.randn(3, 3)
        self.register_buffer("feedback", feedback)


class Kept(nn.Module):
    def __init__(self):
        super().__init__()
        self.feedback = torch.randn(3, 3)

    def get_extra_state(self):
        return self.feedback
