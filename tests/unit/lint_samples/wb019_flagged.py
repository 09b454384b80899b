import torch.nn.functional as F


def alignment(grads, feedback, dfa):
    credits = grads if feedback is None else dfa(feedback)  # flagged
    first = F.cosine_similarity(grads, grads, dim=-1, eps=0.0)  # flagged
    if feedback is None:
        delta = grads  # flagged
    else:
        delta = dfa(feedback)
    return first, F.cosine_similarity(credits, grads, eps=0.0), delta
