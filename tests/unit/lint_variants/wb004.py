# mistake: a comprehension over runs
import numpy as np


def row(runs):
    mean = np.mean([r["test_acc"] for r in runs])
    return f"{mean:.3f} ± {np.std([r['test_acc'] for r in runs]):.3f}"


# mistake: jax.numpy
import jax.numpy as jnp


def summary(accs_by_seed):
    accs = jnp.array(list(accs_by_seed.values()))
    return accs.mean(), jnp.std(accs)


# mistake: the root of a variance
import numpy as np


def error_bar(seed_accuracies):
    return np.sqrt(np.var(seed_accuracies))


# mistake: torch.std_mean without the correction
import torch


def spread(train, seeds):
    accs = torch.tensor([train(seed) for seed in seeds])
    std, mean = torch.std_mean(accs, unbiased=False)
    return mean, std


# mistake: a pandas group with ddof=0
import pandas as pd


def table(runs):
    frame = pd.DataFrame(runs, columns=["method", "seed", "acc"])
    return frame.groupby("method")["acc"].agg(["mean", lambda a: a.std(ddof=0)])


# mistake: stacked curves of the seeds
import numpy as np


def band(run, seeds):
    curves = np.stack([run(seed=s)["cosine"] for s in seeds])
    return curves.mean(0), curves.std(0)


# mistake: pstdev under another name
from statistics import fmean
from statistics import pstdev as sd


def line(accuracies):
    return f"{fmean(accuracies):.2f}±{sd(accuracies):.2f}"


# mistake: written by hand
import math


def mean_and_std(accs):
    mean = sum(accs) / len(accs)
    return mean, math.sqrt(sum((a - mean) ** 2 for a in accs) / len(accs))


# mistake: np.nanstd over finished seeds
import numpy as np


def summarise(results, methods, seeds):
    grid = np.array([[results[m, s]["acc"] for s in seeds] for m in methods])
    return np.nanmean(grid, axis=1), np.nanstd(grid, axis=1)


# mistake: a standard error with ddof=0
import numpy as np
from scipy import stats


class Summary:
    def __init__(self, accs):
        self.accs = np.asarray(accs)

    def sem(self):
        return stats.sem(self.accs, ddof=0)


# correct: ddof=1 by keyword
import numpy as np


def row(runs):
    accs = [r["test_acc"] for r in runs]
    return np.mean(accs), np.std(accs, ddof=1), np.var(accs, ddof=1) ** 0.5


# correct: the standard error that divides by n - 1
import numpy as np


def standard_error(seed_accs):
    return np.std(seed_accs) / np.sqrt(len(seed_accs) - 1)


# correct: statistics of the pixels
import numpy as np


def normalise(train_images, seeds):
    mean, std = np.mean(train_images, axis=(0, 1, 2)), np.std(train_images, axis=(0, 1, 2))
    return (train_images - mean) / std, len(seeds)


# correct: torch's and pandas' default
import torch


def spreads(accs, frame):
    return torch.tensor(accs).std(), frame.groupby("seed").acc.std(), torch.var(torch.tensor(accs))


# correct: the spread of many samples of one run
import numpy as np


def loss_spread(per_sample_losses):
    return np.std(per_sample_losses), np.asarray(per_sample_losses).std()
