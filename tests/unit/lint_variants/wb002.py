# mistake: gradients of a layer's weight, full module path
import torch


def angle(layer, feedback_update):
    g = layer.weight.grad
    return torch.nn.functional.cosine_similarity(g.view(-1), feedback_update.view(-1), dim=0)


# mistake: a pair unpacked with a star
import torch.nn.functional as F


def alignment(p, q):
    pair = (p.grad.flatten(), q.grad.flatten())
    return F.cosine_similarity(*pair, dim=0)


# mistake: arguments by keyword
from torch.nn.functional import cosine_similarity


def compare(bp, fa):
    return {
        name: cosine_similarity(x1=p.grad.flatten(), x2=q.grad.flatten(), dim=0).item()
        for (name, p), (_, q) in zip(bp.named_parameters(), fa.named_parameters())
    }


# mistake: vmap over the functional form
import torch
import torch.nn.functional as F
from torch.func import vmap


def per_sample(loss, h, credit):
    grads = torch.autograd.grad(loss, h)[0]
    return vmap(F.cosine_similarity)(grads, credit)


# mistake: functools.partial sets the axis
from functools import partial

import torch.nn.functional as F

cos = partial(F.cosine_similarity, dim=-1)


def gamma(bp_grad, fa_grad):
    return cos(bp_grad.flatten(1), fa_grad.flatten(1)).mean()


# mistake: in a backward hook
import torch.nn.functional as F


def make_hook(credits, name, log):
    def hook(module, grad_input, grad_output):
        log[name] = F.cosine_similarity(grad_output[0].flatten(1), credits[name].flatten(1)).mean()

    return hook


# mistake: the module form as a global
import torch

similarity = torch.nn.CosineSimilarity(dim=0)


def weight_alignment(model, reference):
    total = {}
    for name, p in model.named_parameters():
        total[name] = similarity(p.grad.reshape(-1), reference[name].reshape(-1))
    return total


# mistake: gradients by torch.func.grad
import torch
import torch.nn.functional as F


def measure(loss_fn, params, batch, dfa_update):
    exact = torch.func.grad(loss_fn)(params, batch)
    return {k: F.cosine_similarity(exact[k].flatten(), dfa_update[k].flatten(), dim=0) for k in exact}


# mistake: one vector of all gradients
import torch.nn.functional as F
from torch.nn.utils import parameters_to_vector


def whole(model, other):
    mine = parameters_to_vector([p.grad for p in model.parameters()])
    theirs = parameters_to_vector([p.grad for p in other.parameters()])
    return F.cosine_similarity(mine[None], theirs[None])


# mistake: jax-style helper names, tensors flattened by einops
import torch
from einops import rearrange


def cos_sim(u, v):
    return torch.cosine_similarity(rearrange(u, "... -> (...)"), rearrange(v, "... -> (...)"), dim=0)


def layer_alignment(loss, weights, pseudo_gradients):
    return [cos_sim(g, d) for g, d in zip(torch.autograd.grad(loss, weights), pseudo_gradients)]


# correct: eps is zero, by position
import torch.nn.functional as F


def alignment(bp_grad, fa_grad):
    return F.cosine_similarity(bp_grad, fa_grad, 1, 0.0)


# correct: image and text embeddings
import torch.nn.functional as F


def clip_scores(image_encoder, text_encoder, images, texts):
    image_features = image_encoder(images)
    text_features = text_encoder(texts)
    return F.cosine_similarity(image_features[:, None], text_features[None], dim=-1)


# correct: the module form with a tiny eps
from torch import nn


class Gauge(nn.Module):
    def __init__(self):
        super().__init__()
        self.cos = nn.CosineSimilarity(dim=1, eps=1e-38)

    def forward(self, grads, credit):
        return self.cos(grads, credit)


# correct: a function of the user's own with that name
from metrics import cosine_similarity


def alignment(model, credits):
    return [cosine_similarity(p.grad, credits[n]) for n, p in model.named_parameters()]


# correct: a loss on representations that is trained with gradients
import torch
import torch.nn.functional as F


def simsiam_step(encoder, predictor, x1, x2, optimiser):
    z1, z2 = encoder(x1), encoder(x2)
    loss = -F.cosine_similarity(predictor(z1), z2.detach(), dim=-1).mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(encoder.parameters(), 1.0)
    optimiser.step()
