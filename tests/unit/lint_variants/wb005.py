# mistake: a running total over the parameters
import torch.nn.functional as F


def alignment(model, reference):
    total, count = 0.0, 0
    for name, p in model.named_parameters():
        total += F.cosine_similarity(p.grad.flatten(), reference[name].flatten(), dim=0, eps=0.0).item()
        count += 1
    return total / count


# mistake: a pandas series of the layers
import pandas as pd


def score(cosine, grads, credits):
    by_layer = {name: cosine(grads[name], credits[name]) for name in grads}
    return pd.Series(by_layer).mean()


# mistake: logged with the dictionary's values
import numpy as np
import wandb


def log(alignments, step):
    wandb.log({"alignment": np.mean(list(alignments.values()))}, step=step)


def alignments_of(layers, cosine):
    alignments = {layer.name: cosine(layer.credit, layer.grad) for layer in layers}
    log(alignments, 0)


# mistake: jax tree of cosines
import jax
import jax.numpy as jnp


def gamma(cosine, grads, credits):
    cosines = jax.tree_util.tree_map(cosine, grads, credits)
    return jnp.mean(jnp.stack(jax.tree_util.tree_leaves(cosines)))


# mistake: collected in an attribute by the layers
import torch
import torch.nn.functional as F


class Meter:
    def __init__(self, layers):
        self.layers = layers
        self.cosines = []

    def update(self):
        for layer in self.layers:
            self.cosines.append(F.cosine_similarity(layer.credit, layer.grad, dim=-1, eps=0.0).mean())

    def value(self):
        return torch.stack(self.cosines).mean()


# mistake: a method of a list turned into a tensor
import torch


def report(blocks, cosine):
    cosines = [cosine(b.credit, b.reference_grad) for b in blocks]
    return torch.tensor(cosines).mean()


# mistake: einops.reduce over layers
import torch
from einops import reduce


def overall(layers, cosine):
    cosines = torch.stack([cosine(layer.credit, layer.grad) for layer in layers])
    return reduce(cosines, "layer batch -> ", "mean")


# mistake: an average by a helper
def mean(values):
    return sum(values) / len(values)


def score(model, updates, cosine):
    cosines = [cosine(p.grad, updates[n]) for n, p in model.named_parameters()]
    return mean(cosines)


# mistake: functools.reduce and a division
import operator
from functools import reduce


def average(layers, alignment):
    cosines = [alignment(layer) for layer in layers]
    return reduce(operator.add, cosines) / len(cosines)


# mistake: np.average with a walrus
import numpy as np


def summary(hidden_layers, cosine, bp, fa):
    if (gamma := np.average([cosine(bp[i], fa[i]) for i, _ in enumerate(hidden_layers)])) > 0.1:
        print("aligned", gamma)
    return gamma


# correct: a mean over the samples of each layer
import torch.nn.functional as F


def by_layer(grads, credits):
    return {n: F.cosine_similarity(grads[n], credits[n], dim=1, eps=0.0).mean().item() for n in grads}


# correct: a mean over the seeds of one layer
import numpy as np


def deepest(measure, seeds):
    cosines = [measure(seed)["layer0"] for seed in seeds]
    return np.mean(cosines), np.std(cosines, ddof=1)


# correct: a mean loss over layers
import torch


def local_losses(layers, h, y, criterion):
    losses = []
    for layer in layers:
        h = layer(h.detach())
        losses.append(criterion(layer.readout(h), y))
    return torch.stack(losses).mean()


# correct: a mean over batches of one layer's cosine
import numpy as np


def layer_cosine(loader, layer, credit, reference, cosine):
    cosines = []
    for x, y in loader:
        cosines.append(cosine(credit(layer, x, y), reference(layer, x, y)))
    return np.mean(cosines)


# correct: a cosine schedule
import numpy as np


def mean_rate(steps):
    return np.mean([0.5 * (1 + np.cos(np.pi * s / steps)) for s in range(steps)])
