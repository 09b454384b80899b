import statistics

import numpy as np
import torch


def table(accs, runs, images, frame):
    a = np.std(accs, ddof=1)
    b = np.array(accs).std(ddof=1)
    c = statistics.stdev(run["acc"] for run in runs)
    d = torch.tensor(accs).std()
    e = frame["accs"].std()
    whitened = (images - np.mean(images)) / np.std(images)
    widths = np.std(whitened, axis=(0, 1))
    return a, b, c, d, e, widths, torch.tensor(images).std(unbiased=False)
