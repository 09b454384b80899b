"""Seeds or epochs chosen after seeing test results: the best of many is above what any of them can do.

Wrong: the best of 20 seeds' test accuracies, where the labels are random and cannot be predicted
Right: the accuracy of a seed that was chosen beforehand
Size: at least 2 pp, as much as D3 requires of trained depth
Linter: WB014, WB021
"""

from __future__ import annotations

import torch

from walkback.core.random_streams import generator
from walkback.pitfalls import small_networks
from walkback.pitfalls.case import PitfallOutcome

_SEEDS, TESTS, REPEATS = 20, 500, 200


def run() -> PitfallOutcome:
    net = small_networks.resolved("bp").net
    x = small_networks.samples(torch.float32)[0][:TESTS]
    predictions = torch.stack([net.forward(net.init(generator(seed, "init")), x).argmax(-1) for seed in range(_SEEDS)])
    labels = torch.randint(net.classes, (REPEATS, TESTS), generator=generator(0, "lots"))
    accuracy = (predictions[:, None] == labels).double().mean(-1)
    wrong, right = accuracy.amax(0).mean().item(), accuracy[0].mean().item()
    note = f"mean over {REPEATS} labellings of {TESTS} test samples; chance is {1 / net.classes:.3f}"
    return PitfallOutcome(wrong, right, 100 * (wrong - right), "pp", 2.0, note)
