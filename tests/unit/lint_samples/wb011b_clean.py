"""Plain training by hand: nothing is measured against a gradient."""

import torch


def backward(logits, y, hidden):
    probs = torch.softmax(logits, dim=1)
    probs[range(len(y)), y] -= 1
    return hidden.T @ probs
