import random

import numpy as np
from scipy import stats

SEEDS = [42, 123, 456]


def interval(train):
    accs = [train(seed) for seed in SEEDS]
    first = stats.bootstrap((accs,), np.mean)  # flagged
    second = [np.mean(np.random.choice(accs, size=len(accs))) for _ in range(1000)]  # flagged
    return first, np.percentile(second, [2.5, 97.5]), random.choices(accs, k=3)  # flagged
