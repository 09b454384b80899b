import statistics

import numpy as np
import torch
import torch.nn.functional as F


def gamma(credits, grads, layers, blocks, model):
    a = np.mean([F.cosine_similarity(credits[layer], grads[layer], dim=1).mean().item() for layer in layers])  # flagged
    cosines = []
    for block in blocks:
        cosines.append(F.cosine_similarity(block.credit, block.grad, dim=-1).mean())
    b = torch.stack(cosines).mean()  # flagged
    c = sum(cosines) / len(cosines)  # flagged
    table = {}
    for name, p in model.named_parameters():
        table[name] = cosine(p.grad, credits[name])
    alignment = {layer: cosine(credits[layer], grads[layer]) for layer in layers}
    d = statistics.fmean(alignment.values())  # flagged
    return a, b, c, d, sum(cosine(credits[i], grads[i]) for i in range_of(layers)) / len(layers)  # flagged


def cosine(a, b):
    return (a * b).sum() / a.norm() / b.norm()


def range_of(layers):
    return range(len(layers))


def average(bp_grads, updates):
    similarities = []
    for name in bp_grads:
        sim = cosine(bp_grads[name], updates[name])
        similarities.append(sim)
    return np.mean(similarities)  # flagged
