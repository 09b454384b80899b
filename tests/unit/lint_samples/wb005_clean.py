import numpy as np
import torch
import torch.nn.functional as F


def per_layer(credits, grads, layers, seeds, measure):
    """Means over samples and over seeds, one for each layer."""
    rows = [F.cosine_similarity(credits[i], grads[i], dim=1, eps=0.0).mean().item() for i in layers]
    cosines = []
    for seed in seeds:
        cosines.append(measure(seed))
    over_seeds = np.mean(cosines)
    stacked = torch.tensor([[F.cosine_similarity(a, b, dim=0) for a, b in seed] for seed in seeds])
    return rows, over_seeds, stacked.mean(dim=0)


def other_means(layers, losses):
    return np.mean([layer.weight.numel() for layer in layers]), sum(losses) / len(losses)


def rotary(layers, angle):
    return torch.stack([torch.cos(angle * layer) for layer in layers]).mean()


def over_samples(grads, credits):
    similarities = []
    for g, a in zip(grads, credits):
        similarities.append(F.cosine_similarity(g, a, dim=0, eps=0.0))
    return np.mean(similarities)
