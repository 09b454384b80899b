"""Run one job of an audit: call the user's training function, check what it returns, and store it as a run."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from walkback.auditing.own_loop.function_reference import FunctionReference, changed_sources, source_hashes
from walkback.auditing.own_loop.job import Job, Trained
from walkback.auditing.own_loop.jobs import LoopJob
from walkback.auditing.own_loop.random_states import seed_all
from walkback.auditing.own_loop.state_arrays import state_to_arrays
from walkback.core.content_hash import document_hash
from walkback.core.errors import InputError, WalkbackError
from walkback.core.files import write_atomic
from walkback.measure.restore import random_state_restored
from walkback.nets.find_blocks import unwrap
from walkback.runs import store
from walkback.runs.deadline import NO_DEADLINE, Deadline, TimeIsUpError
from walkback.runs.provenance import describe_device, provenance
from walkback.runs.train_runs import ProgressListener

INITIAL, CORRECT = "initial.safetensors", "correct.safetensors"
"""Files of a job's folder: the parameters before training, and which test samples are predicted right."""
ERROR = "error.txt"
"""The traceback of the last failure of the training function."""

TrainFunction = Callable[[Job], Trained]


@dataclass(frozen=True)
class JobOptions:
    """How jobs are trained; none of it is part of what a job computes."""

    out: Path
    device: torch.device
    checkpoint_seconds: float = 30.0
    command: tuple[str, ...] = ()
    sources: tuple[FunctionReference, ...] = ()
    """The functions whose source files are hashed: `train` and `build`."""
    described: Mapping[str, str] = field(default_factory=dict)
    needs_feedback: tuple[str, ...] = ()
    """The methods whose feedback is needed to measure them."""


def train_job(
    train: TrainFunction,
    spec: LoopJob,
    options: JobOptions,
    deadline: Deadline = NO_DEADLINE,
    listener: ProgressListener | None = None,
) -> bool:
    """Run a job that is not finished, or go on with it; returns whether it is finished now."""
    listener = listener or ProgressListener()
    run = open_job(spec, options) or _create(spec, options)
    if run.is_done:
        return True
    run.lock()
    try:
        _record_changes(run, options)
        job = Job(spec, run, options.device, deadline, options.checkpoint_seconds, listener)
        hooks = job.watch_steps()
        try:
            with random_state_restored():
                seed_all(spec.seed)
                trained = train(job)
            job.check_end(_require_trained(trained))
            if trained.feedback is None and spec.method in options.needs_feedback:
                raise InputError(
                    f"The measured credit of '{spec.method}' takes the feedback, and {spec.name} was returned without. "
                    "Return it: wb.Trained(model, ..., feedback=feedback)."
                )
        finally:
            for hook in hooks:
                hook.remove()
        _finish(run, job, trained, options)
    except TimeIsUpError:
        return False
    except WalkbackError:
        raise
    except Exception as error:
        with suppress(InputError):
            write_atomic(run.path / ERROR, traceback.format_exc().encode())
        message = f"{type(error).__name__}: {error} ({_place(error)}). The traceback is in {run.path / ERROR}"
        raise InputError(f"The training function failed in {spec.name}: {message}.") from error
    finally:
        run.unlock()
    run.drop_checkpoints()
    (run.path / ERROR).unlink(missing_ok=True)
    return True


def began_with(run: store.Run) -> dict[str, str]:
    """The hashes of the source files that what is stored of a run comes from; none where nothing is trained yet."""
    is_begun = run.is_done or max(run.checkpoint_epochs()) > 0
    found: dict[str, str] = run.record[store.OWN_LOOP].get("sources", {}) if is_begun else {}
    return found


def _record_changes(run: store.Run, options: JobOptions) -> None:
    """Record which source files changed since the run's last checkpoint, and after which epoch."""
    own, now = run.record[store.OWN_LOOP], source_hashes(options.sources)
    changed = changed_sources(began_with(run), now)
    if changed:
        change = {"epoch": max(run.checkpoint_epochs()), "files": changed}
        run.change_record({store.OWN_LOOP: {**own, "sources": now, "changed": [*own.get("changed", []), change]}})


def _place(error: Exception) -> str:
    """File and line in which the error was raised."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(last.filename).name}, line {last.lineno}"


def open_job(spec: LoopJob, options: JobOptions) -> store.Run | None:
    """The job's run if its folder exists, checked to be this job's; otherwise None."""
    path = options.out / spec.name
    if not path.exists():
        return None
    run = store.open_run(path)
    if store.OWN_LOOP not in run.record or run.record["digest"] != document_hash(_config(spec, options)):
        raise InputError(
            f"{path} holds another training ({run.record['method']}, config {run.record['config']}). Use another out=."
        )
    return run


def _config(spec: LoopJob, options: JobOptions) -> dict[str, Any]:
    train = options.sources[0].shown if options.sources else ""
    return {"train": train, **spec.to_json()}


def _create(spec: LoopJob, options: JobOptions) -> store.Run:
    config = _config(spec, options)
    record = {
        "run": spec.name,
        "method": spec.shown,
        "seed": spec.seed,
        "config": config,
        "digest": document_hash(config),
        "rule_has_state": False,
        "data": {"name": options.described.get("data", "")},
        store.OWN_LOOP: {
            "functions": [reference.shown for reference in options.sources],
            "sources": source_hashes(options.sources),
        },
        **provenance(options.device, options.command),
    }
    return store.create_run(options.out / spec.name, record)


def _require_trained(trained: Any) -> Trained:
    if not isinstance(trained, Trained):
        raise InputError(f"The training function returned a {type(trained).__name__}; expected a walkback.Trained.")
    if not isinstance(trained.model, nn.Module):
        raise InputError(f"Trained.model is a {type(trained.model).__name__}; expected a torch.nn.Module.")
    if trained.correct is None and trained.accuracy is None and trained.loss is None:
        raise InputError("Trained has no result; expected correct=, accuracy= or loss=, measured on the test set.")
    if trained.accuracy is not None and not 0 <= float(trained.accuracy) <= 1:
        raise InputError(f"Trained.accuracy is {trained.accuracy!r}; expected a fraction from 0 to 1.")
    return trained


def _finish(run: store.Run, job: Job, trained: Trained, options: JobOptions) -> None:
    """Store weights, feedback, correctness and what is known of the training, and mark the job as done."""
    skeletons: dict[str, Any] = {}
    plain, _ = unwrap(trained.model)
    skeletons[store.MODEL], model = state_to_arrays(plain.state_dict(), "the model's state_dict")
    feedback, initial = _state(trained.feedback), _state(trained.initial)
    rule, first = store.Arrays(), store.Arrays()
    if feedback is not None:
        skeletons[store.RULE], rule = state_to_arrays(feedback, "Trained.feedback")
    if initial is not None:
        skeletons[INITIAL], first = state_to_arrays(initial, "Trained.initial")
    correct = None if trained.correct is None else _correctness(trained.correct)
    accuracy = _accuracy(correct, trained.accuracy)
    device = next((each.device for each in trained.model.parameters()), torch.device("cpu"))
    run.record[store.OWN_LOOP] = {
        **run.record[store.OWN_LOOP],
        "sources": source_hashes(options.sources),
        "skeletons": skeletons,
        "frozen": job.frozen_names,
        "model": type(plain).__name__,
        "trained_on": describe_device(device),
        "epochs": job.epochs_done,
        "epochs_asked": job.epochs_asked,
    }
    run.record["rule_has_state"] = bool(rule)
    result: dict[str, Any] = {"epochs": job.epochs_done}
    result |= {} if accuracy is None else {"test_acc": accuracy}
    result |= {} if trained.loss is None else {"test_loss": float(trained.loss)}
    others = {INITIAL: first, CORRECT: {} if correct is None else {"correct": correct}}
    run.finish(model, rule, result, {"seconds": job.seconds}, others)


def _state(given: Any) -> Any:
    return given.state_dict() if isinstance(given, nn.Module) else given


def _correctness(given: Any) -> np.ndarray:
    values = given.detach().cpu().numpy() if isinstance(given, Tensor) else np.asarray(given)
    if values.ndim != 1 or not values.size or not np.isin(values, (0, 1)).all():
        raise InputError(
            f"Trained.correct has the shape {list(values.shape)}; expected one number for each test sample, 1 where "
            "the prediction is right and 0 where it is wrong."
        )
    return values.astype(np.uint8)


def _accuracy(correct: np.ndarray | None, stated: float | None) -> float | None:
    if correct is None:
        return None if stated is None else float(stated)
    accuracy = float(correct.mean())
    if stated is not None and abs(float(stated) - accuracy) > 1e-6:
        raise InputError(f"Trained.accuracy is {stated}, and Trained.correct has {accuracy}. Give one of them.")
    return accuracy
