import statistics

import numpy as np
import torch


def table(accs, runs, train):
    a = np.std(accs)  # flagged
    b = np.array(accs).std()  # flagged
    c = statistics.pstdev(run["acc"] for run in runs)  # flagged
    d = torch.tensor(accs).std(unbiased=False)  # flagged
    e = np.std([train(seed) for seed in (1, 2, 3)], ddof=0)  # flagged
    values = []
    for seed in range(3):
        values.append(train(seed))
    f = np.std(values, axis=0)  # flagged
    g = torch.std(torch.tensor(accs), correction=0)  # flagged
    return a, b, c, d, e, f, g
