import torch
import torch.nn.functional as F


def alignment(grads, feedback, dfa):
    if feedback is None:
        raise ValueError("There is no feedback in this checkpoint.")
    credits = dfa(feedback) if feedback is not None else None
    return F.cosine_similarity(credits, grads, eps=0.0)


def test_cosine(grads, tokens):
    assert torch.allclose(F.cosine_similarity(grads, grads, eps=0.0), torch.ones(3))
    return F.cosine_similarity(tokens, tokens)
