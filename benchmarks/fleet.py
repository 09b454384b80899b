"""Time per step and model: a plain eager loop against the single driver and fleets of several sizes, in one run.

    python benchmarks/fleet.py [--models 1 3 12] [--epochs 3] [--json FILE]

Each figure is the median over the timed epochs; the first epoch (compilation, capture, caches) is not timed.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from walkback.api import grid
from walkback.data.dataset import Dataset
from walkback.studies.provenance import provenance
from walkback.studies.run import choose_device
from walkback.training.fleet import Fleet
from walkback.training.recipe import Recipe, resolve
from walkback.training.single import Single

DATA = "prototypes:dim=3072,train=6400,test=100"
"""Vectors as long as a CIFAR image, so that the arithmetic is CIFAR's; no file is needed."""


class Block(nn.Module):
    def __init__(self, d: int):
        super().__init__()
        self.norm, self.w1, self.w2 = nn.LayerNorm(d), nn.Linear(d, d), nn.Linear(d, d)

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = h + self.w2(F.gelu(self.w1(self.norm(h))))
        return out


def plain_loop(data: Dataset, d: int, depth: int, batch: int, device: torch.device) -> Callable[[], int]:
    """What people write: nn.Module, autograd, torch's default AdamW. Returns an epoch as a function."""
    blocks = [Block(d) for _ in range(depth)]
    net = nn.Sequential(nn.Linear(3072, d), *blocks, nn.LayerNorm(d), nn.Linear(d, 10)).to(device)
    optimiser = torch.optim.AdamW(net.parameters(), lr=1e-3, weight_decay=0.01)
    x, y = data.train_x.to(device), data.train_y.to(device)

    def epoch() -> int:
        order = torch.randperm(len(y), device=device)
        steps = len(y) // batch
        for step in range(steps):
            index = order[step * batch : (step + 1) * batch]
            loss = F.cross_entropy(net(x[index]), y[index])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
        return steps

    return epoch


def milliseconds(epoch: Callable[[], int], repeats: int, device: torch.device) -> tuple[float, float]:
    """Median and spread (largest - smallest) of the time per step."""
    times = []
    for repeat in range(repeats + 1):
        if device.type == "cuda":
            torch.cuda.synchronize()
        start = time.perf_counter()
        steps = epoch()
        if device.type == "cuda":
            torch.cuda.synchronize()
        if repeat:
            times.append(1e3 * (time.perf_counter() - start) / steps)
    return statistics.median(times), max(times) - min(times)


def recipes(method: str, models: int, d: int, depth: int, epochs: int) -> list[Recipe]:
    arch = f"resmlp:d={d},depth={depth}"
    return [resolve(config) for config in grid(method, arch=arch, data=DATA, seeds=range(models), epochs=epochs)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=int, nargs="+", default=[1, 3, 12])
    parser.add_argument("--methods", nargs="+", default=["bp", "fa", "dfa"])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--d", type=int, default=256)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    device = choose_device("auto")
    first = recipes("bp", 1, args.d, args.depth, 1)[0]
    data = first.source.load(None)
    batch = first.config.batch
    rows = []

    def report(what: str, models: int, epoch: Callable[[], int]) -> None:
        median, spread = milliseconds(epoch, args.epochs, device)
        per_model = median / models
        base = rows[0]["ms_per_step_and_model"] if rows else per_model
        rows.append({"what": what, "models": models, "ms_per_step_and_model": per_model, "spread": spread / models})
        print(
            f"{what:<14} M={models:<4} {per_model:9.4f} ms/step/model  {base / per_model:6.1f}x the plain loop",
            flush=True,
        )

    report("plain loop", 1, plain_loop(data, args.d, args.depth, batch, device))
    single = Single(recipes("bp", 1, args.d, args.depth, args.epochs + 1)[0], data, device)
    report("single bp", 1, lambda: single.train_epoch(lambda _: None) and single.steps_per_epoch)
    for models in args.models:
        for method in args.methods:
            fleet = Fleet(recipes(method, models, args.d, args.depth, args.epochs + 1), data, device)
            report(
                f"fleet {method}",
                models,
                lambda fleet=fleet: fleet.train_epoch(lambda _: None) and fleet.steps_per_epoch,
            )  # type: ignore[misc]
            del fleet
    if args.json:
        args.json.write_text(json.dumps({"rows": rows, **provenance(device, [])}, indent=1) + "\n")


if __name__ == "__main__":
    main()
