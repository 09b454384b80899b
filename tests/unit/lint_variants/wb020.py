# mistake: scipy's bootstrap imported by name
import numpy as np
from scipy.stats import bootstrap


def interval(train):
    accs = np.array([train(seed) for seed in (0, 1, 2)])
    return bootstrap((accs,), np.mean, confidence_level=0.95, method="percentile")


# mistake: a matrix of draws with a numpy generator
import numpy as np

SEEDS = (42, 123, 456)


def interval(accuracy):
    rng = np.random.default_rng(0)
    accs = np.array([accuracy[s] for s in SEEDS])
    means = rng.choice(accs, size=(10_000, len(accs)), replace=True).mean(1)
    return np.quantile(means, [0.025, 0.975])


# mistake: random indices into the seeds' results
import numpy as np


def interval(run):
    seed_accs = np.array([run(s) for s in range(3)])
    rows = np.random.randint(0, len(seed_accs), size=(1000, len(seed_accs)))
    return np.percentile(seed_accs[rows].mean(1), [2.5, 97.5])


# mistake: scikit-learn's resample
import numpy as np
from sklearn.utils import resample


def interval(train):
    accs = [train(seed=s) for s in [1, 2, 3, 4, 5]]
    means = [np.mean(resample(accs)) for _ in range(1000)]
    return np.percentile(means, [2.5, 97.5])


# mistake: seaborn's default error bar
import pandas as pd
import seaborn as sns


def plot(results):
    frame = pd.DataFrame({"seed": [0, 1, 2], "acc": [results[s] for s in (0, 1, 2)], "method": "dfa"})
    sns.barplot(frame, x="method", y="acc", errorbar=("ci", 95))


# mistake: torch.randint
import torch


def interval(run):
    accs = torch.tensor([run(seed) for seed in range(5)])
    draws = accs[torch.randint(len(accs), (1000, len(accs)))].mean(1)
    return torch.quantile(draws, torch.tensor([0.025, 0.975]))


# mistake: pandas sample with replacement
import pandas as pd


def interval(train):
    accs = pd.Series({seed: train(seed) for seed in (1, 2, 3)})
    means = pd.Series([accs.sample(frac=1, replace=True).mean() for _ in range(999)])
    return means.quantile([0.025, 0.975])


# mistake: random.choices in a loop
import random
from statistics import fmean


def interval(results, seeds=(7, 8, 9)):
    accs = [results[s]["test_acc"] for s in seeds]
    means = []
    for _ in range(1000):
        means.append(fmean(random.choices(accs, k=len(accs))))
    return sorted(means)[25], sorted(means)[975]


# mistake: jax.random.choice
import jax
import jax.numpy as jnp


def interval(train, key):
    accs = jnp.array([train(seed) for seed in range(4)])
    draws = jax.random.choice(key, accs, (1000, 4)).mean(1)
    return jnp.percentile(draws, jnp.array([2.5, 97.5]))


# mistake: a list of seeds in a class
import numpy as np
from scipy import stats


class Study:
    seeds = [1, 2, 3]

    def interval(self, results):
        accs = [results[s] for s in self.seeds]
        return stats.bootstrap((accs,), np.mean).confidence_interval


# correct: thirty seeds
import numpy as np
from scipy.stats import bootstrap


def interval(train):
    accs = np.array([train(seed) for seed in range(30)])
    return bootstrap((accs,), np.mean)


# correct: samples of the test set
import numpy as np


def interval(correct):
    rng = np.random.default_rng(0)
    rows = rng.integers(0, len(correct), size=(1000, len(correct)))
    return np.percentile(correct[rows].mean(1), [2.5, 97.5])


# correct: a t interval over seeds
import numpy as np
from scipy import stats


def interval(train):
    accs = [train(seed) for seed in (1, 2, 3)]
    half = stats.t.ppf(0.975, len(accs) - 1) * stats.sem(accs)
    return np.mean(accs) - half, np.mean(accs) + half


# correct: a random learning rate for each of three seeds
import numpy as np


def search(train):
    rng = np.random.default_rng(0)
    return {seed: train(seed, lr=rng.choice([1e-2, 1e-3, 1e-4])) for seed in (1, 2, 3)}


# correct: a seed is picked to show
import random


def picture(runs, seeds=(1, 2, 3)):
    accs = [runs[s].acc for s in seeds]
    return runs[random.choice(seeds)], max(accs) - min(accs)
