import torch
import torch.nn.functional as F


def dfa(logits, y, feedback, grads):
    e = torch.softmax(logits.double(), dim=1) - F.one_hot(y, 10)
    probs = torch.softmax(logits, dim=1)
    others = probs.scatter(1, y[:, None], 0.0)
    safe = others.scatter(1, y[:, None], -others.sum(1, keepdim=True))
    counts = torch.zeros(len(y), 10)
    counts[torch.arange(len(y)), y] -= 1.0
    return F.cosine_similarity(safe @ feedback, grads, eps=0.0), e, probs - probs.mean()


def in_double(values, y, onehot):
    logits = torch.tensor(values, dtype=torch.float64)
    return logits.softmax(-1) - onehot
