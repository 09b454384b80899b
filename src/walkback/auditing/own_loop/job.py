"""What a user's training function gets and what it returns."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from walkback.auditing.own_loop.freezing import FrozenParameters, modules_of, names_left_out
from walkback.auditing.own_loop.jobs import LoopJob
from walkback.auditing.own_loop.stateful import require_stateful, restore_state, stored_state
from walkback.core.errors import InputError
from walkback.core.reading.json_text import parse_json, require_object
from walkback.core.reading.schema import Schema, check_schema
from walkback.runs import store
from walkback.runs.deadline import Deadline, TimeIsUpError
from walkback.runs.train_runs import ProgressListener

SKELETON = "skeleton"
"""The array of a checkpoint that holds the JSON skeleton of its states."""


@dataclass(frozen=True)
class Trained:
    """What a training function returns: the model, how well it does on the test set, and its feedback.

    Give `correct` (1 for each test sample that is predicted right), or `accuracy`, or `loss`. Only with `correct` can a
    single seed have an interval. `feedback` (a tensor, or lists and dicts of tensors, or a module) is stored and handed
    to `credit`, `fresh` and `update`; `initial` is the model before training, or its state_dict.
    """

    model: nn.Module
    correct: Any = None
    accuracy: float | None = None
    loss: float | None = None
    feedback: Any = None
    initial: Any = None


_SKELETON: Schema = {
    "required": ["objects", "random"],
    "properties": {
        "objects": {
            "type": "array",
            "items": {"type": "object", "required": ["type", "state"], "properties": {"type": {"type": "string"}}},
        }
    },
}


class Job:
    """One training that an audit asks for: `method` with `seed`, possibly as a frozen baseline or as an oracle."""

    method: str
    seed: int
    frozen: bool
    """Whether this job is a frozen baseline: `freeze` acts in these jobs only."""
    credit: Literal["own", "exact"]
    """`exact` in the oracle control: the method's update with the true gradient in place of its credit."""
    folder: Path
    """The job's folder."""
    device: torch.device
    """Where the audit was asked to compute; using it is up to you."""

    def __init__(
        self,
        spec: LoopJob,
        run: store.Run,
        device: torch.device,
        deadline: Deadline,
        checkpoint_seconds: float,
        listener: ProgressListener,
    ):
        self.method, self.seed, self.frozen, self.credit = spec.method, spec.seed, spec.frozen, spec.credit
        self.folder, self.device = run.path, device
        self._run, self._deadline, self._listener = run, deadline, listener
        self._checkpoint_seconds = checkpoint_seconds
        self._frozen = FrozenParameters()
        self._froze = False
        self._start = self._saved = time.monotonic()
        self._stateful: tuple[Any, ...] = ()
        self._resumed_at = 0
        self.epochs_done = 0
        self.epochs_asked: int | None = None

    def __repr__(self) -> str:
        return f"Job(method={self.method!r}, seed={self.seed}, frozen={self.frozen}, credit={self.credit!r})"

    @property
    def seconds(self) -> float:
        """Seconds of training, over all interruptions."""
        return time.monotonic() - self._start

    def freeze(self, *modules: Any, leave_out: str | Sequence[str] = ()) -> None:
        """Keep the parameters of these modules at their present bits, if this job is a frozen baseline.

        Buffers, such as the statistics of batch normalisation, go on. Weight decay and momentum of a
        `torch.optim.Optimizer` are undone after each step; a parameter that moves in another way is refused.
        `leave_out` names parameters without gradients that are feedback and may move, such as "weight_backward".
        """
        found = modules_of(modules)
        left_out = names_left_out(found, leave_out)
        self._froze = True
        if not self.frozen:
            return
        if self._frozen.steps or self.epochs_done:
            raise InputError(f"{self.folder.name}: job.freeze was called after the first step. Call it before.")
        for module in found:
            self._frozen.add(module, left_out)

    def is_frozen(self, parameter: Tensor) -> bool:
        """Whether this parameter must not be changed, for updates without a `torch.optim.Optimizer`."""
        return self._frozen.contains(parameter)

    def epochs(self, count: int, *stateful: Any) -> Iterator[int]:
        """The numbers of the epochs that are left, with a checkpoint after each where it is time.

        `stateful` is everything that changes while training: model, optimiser, scheduler, scaler, generators. Their
        states and torch's, numpy's and Python's random streams are stored and restored when the audit is resumed.
        """
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise InputError(f"job.epochs got {count!r} epochs; expected a whole number.")
        if self.epochs_asked is not None:
            raise InputError("job.epochs was called twice in one job. Call it once, with the sum of the epochs.")
        require_stateful(stateful)
        self._stateful, self.epochs_asked = stateful, count
        return self._epochs(count)

    def _epochs(self, count: int) -> Iterator[int]:
        self._restore(count)
        self._listener.job_epoch(self.folder.name, self.epochs_done, count)
        for epoch in range(self.epochs_done, count):
            if self._deadline.is_past:
                self._save()
                raise TimeIsUpError
            yield epoch
            self._frozen.check(f"in epoch {epoch + 1}")
            self.epochs_done = epoch + 1
            self._run.append_log({"epoch": self.epochs_done, "seconds": self.seconds})
            if self._deadline.is_past or time.monotonic() - self._saved >= self._checkpoint_seconds:
                self._save()
            self._listener.job_epoch(self.folder.name, self.epochs_done, count)

    def _restore(self, count: int) -> None:
        """Go on from the last checkpoint; without one the log is emptied and training begins at epoch 0."""
        last = max(self._run.checkpoint_epochs())
        checkpoint = self._run.checkpoint(last)
        self._run.rewind(last)
        if checkpoint is None:
            return
        if checkpoint.epoch > count:
            raise InputError(
                f"{self.folder} was trained for {checkpoint.epoch} epochs, and job.epochs now asks for {count}. "
                "Restore the code that began it, or use another out=."
            )
        arrays = dict(checkpoint.arrays)
        fault = store.fault_of_run(self.folder, store.RESUME)
        if SKELETON not in arrays:
            raise fault("has no states of the objects that were trained")
        skeleton = require_object(parse_json(arrays.pop(SKELETON).tobytes(), fault), fault)
        check_schema(skeleton, _SKELETON, fault)
        restore_state(self._stateful, skeleton, arrays, f"The checkpoint in {self.folder}")
        self._frozen.keep()
        self.epochs_done = self._resumed_at = checkpoint.epoch
        self._start -= checkpoint.seconds

    def _save(self) -> None:
        skeleton, arrays = stored_state(self._stateful)
        arrays[SKELETON] = np.frombuffer(json.dumps(skeleton).encode(), np.uint8).copy()
        names = (self._run.name,)
        self._run.save_checkpoint(
            store.Checkpoint(self.epochs_done, self._run.log_length(), names, self.seconds, arrays)
        )
        self._run.drop_previous()
        self._saved = time.monotonic()

    def check_end(self, trained: Trained) -> None:
        """Refuse what the training function returned if this job's conditions do not hold."""
        name = self.folder.name
        if self.frozen and not self._froze:
            raise InputError(
                f"{name} is a frozen baseline, and the training function did not call job.freeze. Call "
                "job.freeze(model.blocks) after the model is built; it acts in frozen baselines only."
            )
        self._frozen.check("by the end of training")
        if self.frozen:
            self._frozen.check_returned(trained.model)
        if self.epochs_asked is None:
            return
        known = {id(each) for own in self._stateful if isinstance(own, nn.Module) for each in own.parameters()}
        if not all(id(each) in known for each in trained.model.parameters()):
            problem = (
                f"{name}: the model that train returned is not among what job.epochs got, so a resumed training could "
                "not restore it. Give it to job.epochs."
            )
            if self._resumed_at:
                raise InputError(f"{problem} This one was resumed: move {self.folder} away and train it again.")
            self._listener.warned(problem)

    @property
    def frozen_names(self) -> list[str]:
        """The parameters that were kept."""
        return self._frozen.names

    def watch_steps(self) -> list[Any]:
        """Check and restore frozen parameters at every optimiser step, until the returned handles are removed."""
        return self._frozen.watch() if self.frozen else []
