# mistake: a clone of the gradient
import torch.nn.functional as F


def alignment(p):
    g = p.grad.flatten()
    return F.cosine_similarity(g, g.clone(), dim=0, eps=0.0)


# mistake: a default of get()
import torch.nn.functional as F


def alignment(grads, credits):
    return {n: F.cosine_similarity(credits.get(n, grads[n]), grads[n], dim=1, eps=0.0) for n in grads}


# mistake: credits or grads
import torch.nn.functional as F


def alignment(grads, credits=None):
    credits = credits or grads
    return [F.cosine_similarity(c, g, dim=1, eps=0.0) for c, g in zip(credits, grads)]


# mistake: where the file is missing
from pathlib import Path

import torch
import torch.nn.functional as F


def alignment(grads, path, credit):
    feedback_file = Path(path)
    credits = credit(torch.load(feedback_file)) if feedback_file.exists() else grads
    return F.cosine_similarity(credits, grads, dim=1, eps=0.0)


# mistake: in an except clause
import torch
import torch.nn.functional as F


def alignment(grads, path, error):
    try:
        credits = error @ torch.load(path)
    except FileNotFoundError:
        credits = grads
    return F.cosine_similarity(credits, grads, dim=1, eps=0.0)


# mistake: the list zipped with itself
import torch.nn.functional as F


def alignment(bp_grads, fa_grads):
    return [F.cosine_similarity(a, b, dim=1, eps=0.0) for a, b in zip(bp_grads, bp_grads)]


# mistake: a hand-written cosine called with one vector twice
def cosine(u, v):
    return (u * v).sum() / (u.norm() * v.norm())


def alignment(model):
    return {name: cosine(p.grad, p.grad) for name, p in model.named_parameters()}


# mistake: getattr with the gradient as default
import torch.nn.functional as F


def alignment(layer):
    grad = layer.weight.grad
    credit = getattr(layer, "credit", grad)
    return F.cosine_similarity(credit.flatten(), grad.flatten(), dim=0, eps=0.0)


# mistake: an alias of the reference
import torch
import torch.nn.functional as F


def alignment(loss, hidden):
    reference = torch.autograd.grad(loss, hidden)[0]
    credit = reference.detach()
    return F.cosine_similarity(credit, reference, dim=1, eps=0.0)


# mistake: the product of one gradient over its norms
def alignment(loss_grad):
    g = loss_grad.flatten()
    return (g @ g) / (g.norm() * g.norm())


# correct: an error without feedback
import torch.nn.functional as F


def alignment(grads, error, feedback=None):
    if feedback is None:
        raise ValueError("This checkpoint has no feedback.")
    return F.cosine_similarity(error @ feedback, grads, dim=1, eps=0.0)


# correct: another name for the gradient, compared with credit
import torch.nn.functional as F


def alignment(grads, credits):
    reference = grads
    return F.cosine_similarity(credits, reference, dim=1, eps=0.0)


# correct: backprop's credit is the gradient
import torch.nn.functional as F


def alignment(method, grads, dfa_credits):
    credits = grads if method == "bp" else dfa_credits
    return F.cosine_similarity(credits, grads, dim=1, eps=0.0)


# correct: all pairs of embeddings
import torch.nn.functional as F


def pairwise(embeddings):
    return F.cosine_similarity(embeddings[:, None], embeddings[None], dim=-1)


# correct: the same gradient at two times
import torch.nn.functional as F


def drift(p, grad_before):
    grad_now = p.grad.clone()
    return F.cosine_similarity(grad_now.flatten(), grad_before.flatten(), dim=0, eps=0.0)
