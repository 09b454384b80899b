import torch
import torch.nn.functional as F


def dfa(logits, y, feedback, grads):
    probs = torch.softmax(logits, dim=1)
    probs[torch.arange(len(y)), y] -= 1.0  # flagged
    credit = probs @ feedback
    e = F.softmax(logits, dim=-1) - F.one_hot(y, 10)  # flagged
    return F.cosine_similarity(credit, grads, eps=0.0), e


def error(logits, y):
    p = logits.softmax(1)
    onehot = F.one_hot(y, 10).float()
    return p - onehot  # flagged
