"""Feedback is saved beside the model."""

import torch


def train(model, widths, file):
    feedback = [torch.randn(10, width) for width in widths]
    model.fit(feedback)
    torch.save({"model": model.state_dict(), "feedback": feedback}, file)
