import random

import numpy as np
from scipy import stats

SEEDS = range(50)


def interval(train, correct, seeds):
    accs = [train(seed) for seed in SEEDS]
    over_seeds = stats.bootstrap((accs,), np.mean)
    over_samples = stats.bootstrap((correct,), np.mean)
    t = stats.t.interval(0.95, len(accs) - 1, np.mean(accs), stats.sem(accs))
    return over_seeds, over_samples, t, random.choice(seeds), np.random.choice(seeds, 2, replace=False)
