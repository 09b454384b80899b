# mistake: uniform feedback by arithmetic on torch.rand
import torch
from torch import nn


class FeedbackLinear(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_out, n_in))
        self.feedback = torch.rand(n_out, n_in) * 2 - 1


# mistake: filled in place after torch.empty
import torch
import torch.nn as nn


class DFALayer(nn.Module):
    def __init__(self, n_hidden, n_classes):
        super().__init__()
        self.fb_weight = torch.empty(n_classes, n_hidden).uniform_(-0.1, 0.1)


# mistake: nn.init on an empty tensor
import math

import torch
from torch import nn


class FALinear(nn.Linear):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.backward_weight = torch.empty_like(self.weight)
        nn.init.kaiming_uniform_(self.backward_weight, a=math.sqrt(5))


# mistake: parameters in a plain list
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, widths, n_classes):
        super().__init__()
        self.feedback_matrices = [nn.Parameter(torch.randn(n_classes, w), requires_grad=False) for w in widths]


# mistake: appended in a loop
import torch
from torch import nn


class DFANet(nn.Module):
    def __init__(self, widths):
        super().__init__()
        self.feedback = []
        for w in widths:
            self.feedback.append(torch.randn(10, w) / 10**0.5)


# mistake: a buffer that is not persistent, by position
import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.register_buffer("B", torch.randn(10, d).sign(), False)

    def backward(self, error):
        return error @ self.B


# mistake: drawn in a helper method
import torch
from torch import nn


class AlignedNet(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.feedback = self._random_feedback(d)

    def _random_feedback(self, d):
        return torch.randn(d, 10) / d**0.5


# mistake: drawn lazily in forward
import torch
from torch import nn


class LazyFeedback(nn.Module):
    feedback = None

    def forward(self, x):
        if self.feedback is None:
            self.feedback = torch.randn(x.shape[1], 10, device=x.device)
        return x


# mistake: numpy draws, kept beside the model that is saved alone
import numpy as np
import torch


def fit(model, sizes, path, epochs):
    B = {i: torch.from_numpy(np.random.randn(10, s)).float() for i, s in enumerate(sizes)}
    for _ in range(epochs):
        model.dfa_step(B)
    torch.save({"model": model.state_dict(), "epochs": epochs}, path)


# mistake: setattr with a numbered name
import torch
from torch import nn


class Direct(nn.Module):
    def __init__(self, widths):
        super().__init__()
        for i, w in enumerate(widths):
            setattr(self, f"feedback_{i}", torch.randn(10, w))


# correct: a persistent buffer by arithmetic
import torch
from torch import nn


class FeedbackLinear(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.register_buffer("feedback", torch.rand(n_out, n_in) * 2 - 1)


# correct: a ParameterList
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, widths):
        super().__init__()
        self.feedback = nn.ParameterList(nn.Parameter(torch.randn(10, w), requires_grad=False) for w in widths)


# correct: saved beside the model
import torch


def fit(model, sizes, path):
    feedback = {i: torch.randn(10, s) * 0.1 for i, s in enumerate(sizes)}
    model.dfa_step(feedback)
    torch.save({"model": model.state_dict(), "B": feedback}, path)


# correct: noise for a denoiser
import torch
from torch import nn


class Denoiser(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.noise = torch.randn(1, d) * 0.1
        self.grid = torch.rand(d) * 2 - 1


# correct: a frozen Linear as feedback
import torch
from torch import nn


class FALayer(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.forward_layer = nn.Linear(n_in, n_out)
        self.feedback_layer = nn.Linear(n_out, n_in, bias=False).requires_grad_(False)
        self.feedback_scale = 0.5
