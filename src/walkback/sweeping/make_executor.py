"""Make an executor by its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from walkback.core.errors import unknown
from walkback.core.machine import cores
from walkback.runs.train_runs import TrainOptions, choose_device
from walkback.sweeping.executor import Executor

EXECUTORS = ("local", "ray", "slurm")


def gpu_count(device: str) -> int:
    """The number of GPUs of this machine to use."""
    return torch.cuda.device_count() if choose_device(device).type == "cuda" else 0  # type: ignore[arg-type]


def make_executor(kind: str, options: TrainOptions, at_once: int | None, slurm: Mapping[str, Any]) -> Executor:
    """The executor of this kind; `slurm` are parameters of submitit."""
    if kind == "slurm":
        from walkback.sweeping.slurm_executor import SlurmExecutor

        return SlurmExecutor(options.out.resolve() / ".slurm", slurm, wants_gpu=options.device == "cuda")
    if kind == "ray":
        from walkback.sweeping.ray_executor import RayExecutor

        return RayExecutor(at_once or cores(), wants_gpu=options.device == "cuda")
    if kind != "local":
        raise unknown("executor", kind, EXECUTORS)
    from walkback.sweeping.executor import LocalExecutor, visible_gpus

    return LocalExecutor(visible_gpus(gpu_count(options.device)))
