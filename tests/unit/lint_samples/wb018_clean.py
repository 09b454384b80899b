import torch
import torch.nn.functional as F


def measure_alignment(error, grads, feedback):
    return F.cosine_similarity(error @ feedback, grads, eps=0.0)


def alignment_null(error, grads, width):
    feedback = torch.randn(10, width)
    return F.cosine_similarity(error @ feedback, grads, eps=0.0)


def measure_with_control(error, grads, feedback):
    random_feedback = torch.randn_like(feedback)
    return [F.cosine_similarity(error @ f, grads, eps=0.0) for f in (feedback, random_feedback)]


def make_feedback(width):
    feedback = torch.randn(10, width)
    return feedback
