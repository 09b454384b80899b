"""What is measured of the models that a training function returned, and its files beside the jobs, for verification.

`samples.safetensors` has the evaluation samples (and training samples and initial parameters, where given);
`loop.json` has the functions by file and name, and the plain options.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import safetensors.numpy
import torch
from torch import nn

from walkback.auditing.diagnose_model import measure_model, measure_options
from walkback.auditing.own_loop.function_reference import FunctionReference
from walkback.auditing.own_loop.jobs import BACKPROP
from walkback.auditing.own_loop.state_arrays import checked_state, state_to_arrays
from walkback.core.content_hash import SHA256, arrays_hash, document_hash, with_hash
from walkback.core.errors import InputError
from walkback.core.files import write_atomic
from walkback.core.measurements import Measurements
from walkback.core.reading.array_files import read_safetensors
from walkback.core.reading.json_text import parse_json, read_object
from walkback.core.reading.regular_files import fault_of
from walkback.core.reading.schema import Schema, check_schema
from walkback.measure.discovery import subject_of
from walkback.measure.inputs import Groups, joined_samples, regroup
from walkback.measure.restore import measurement_mode, random_state_restored

LOOP, SAMPLES = "loop.json", "samples.safetensors"


class ChangedPlanError(InputError):
    """A file of the plan is not the one that was written."""

    def __init__(self, path: Path):
        super().__init__(f"{path} is not the file that was written (its sha256 differs). Audit again with resume.")
        self.name = path.name


FUNCTIONS = {"credit": 1, "fresh": 1, "update": 2, "reference": 1}
"""The options that are functions of the method's, with the number of arguments that `wb.diagnose` calls them with; one
more takes the job's feedback."""
_OF_THE_METHOD = (*FUNCTIONS, "exact", "labels", "null_space")
"""Options that say something of the method's credit, and nothing of backprop's."""
_PLAIN = ("exact", "labels", "null_space", "pool", "distinct")
"""Options that are stored by their value."""


@dataclass(frozen=True)
class MeasurePlan:
    """How every model of an audit is measured."""

    build: Callable[..., nn.Module]
    samples: tuple[Any, Any]
    """The evaluation samples and their labels."""
    options: Mapping[str, Any]
    """Keyword arguments of `wb.diagnose`; the functions of the method may be dicts by method."""
    step_fn: Callable[..., Any] | None = None
    sources: Mapping[str, str] = field(default_factory=dict)
    """Hashes of the source files of `train` and `build` when the models were measured."""

    @staticmethod
    def of(
        build: Any, eval_batches: Any, step_fn: Any, options: Mapping[str, Any], methods: Iterable[str]
    ) -> MeasurePlan:
        """A plan from what a user gives; refused if it cannot be measured with."""
        if not callable(build):
            raise InputError(
                "build= is missing; expected a function that builds the untrained model, such as the model's class: "
                "the stored weights are loaded into it."
            )
        if eval_batches is None:
            raise InputError("eval_batches= is missing; expected (x, y) batches, or a function that returns them.")
        for name in FUNCTIONS:
            given = options.get(name)
            for each in given.values() if isinstance(given, Mapping) else (given,):
                if not (each is None or callable(each) or (name == "credit" and each in ("auto", "backward"))):
                    raise InputError(f"{name} is a {type(each).__name__}; expected a function, or a dict by method.")
            unknown_methods = set(given) - set(methods) if isinstance(given, Mapping) else set()
            if unknown_methods:
                raise InputError(f"{name}= names the method '{min(unknown_methods)}', which is not audited.")
        batches = list(eval_batches() if callable(eval_batches) else eval_batches)
        given = dict(options)
        if given.get("train_batches") is not None:
            given["train_batches"] = list(given["train_batches"])  # Read more than once.
        plan = MeasurePlan(build, joined_samples(batches), given, step_fn)
        plan.check(methods)
        return plan

    @property
    def groups(self) -> Groups:
        return regroup([self.samples], distinct=None if self.options.get("distinct", True) else False)

    def check(self, methods: Iterable[str]) -> None:
        """Build each method's model and find its blocks, before anything is trained."""
        groups = self.groups
        for method in methods:
            with random_state_restored():
                model = self.build_for(method)
                with measurement_mode(model):
                    subject_of(model, self._blocks, *groups[0], self.step_fn)

    def build_for(self, method: str) -> nn.Module:
        """The untrained model of a method."""
        model = self.build(method) if _required(self.build) == 1 else self.build()
        if not isinstance(model, nn.Module):
            raise InputError(f"build returned a {type(model).__name__}; expected a torch.nn.Module.")
        return model

    def measure(self, method: str, model: nn.Module, feedback: Any, initial: Any) -> Measurements:
        """Measure a trained model of a method."""
        given = {"initial": initial, **self._options_of(method, feedback)}
        options = measure_options(
            **{"reference": None, "fresh": None, "update": None, "pool": "auto", "null_space": None, "credit": "auto"}
            | given
        )
        _, found = measure_model(model, self.groups, self._blocks, self.step_fn, options)
        return found

    @property
    def _blocks(self) -> Any:
        blocks = self.options.get("blocks", "auto")
        return "auto" if blocks is None else blocks

    def _options_of(self, method: str, feedback: Any) -> dict[str, Any]:
        """The measuring options of a method, its functions with the feedback where they take it."""
        found = {
            name: value for name, value in self.options.items() if name not in ("blocks", "distinct", *_OF_THE_METHOD)
        }
        for name in _OF_THE_METHOD:
            value = _of_method(self.options, name, method)
            if callable(value) and name in FUNCTIONS and _required(value) == FUNCTIONS[name] + 1:
                if feedback is None:
                    raise InputError(f"{name}= takes the feedback, and the model of '{method}' was returned without.")
                value = partial(_with_feedback, value, feedback)
            if value is not None:
                found[name] = value
        return {name: value for name, value in found.items() if value is not None}

    def save(self, folder: Path, functions: Mapping[str, Any], described: Mapping[str, str]) -> None:
        """Write what a verification needs; a function that cannot be imported again is stored without its file."""
        own = {"build": self.build, "step_fn": self.step_fn, **functions}
        own |= {name: self.options.get(name) for name in FUNCTIONS}
        plain = {name: value for name, value in self.options.items() if name in _PLAIN}
        blocks = self._blocks
        is_text = isinstance(blocks, str) or (isinstance(blocks, list | tuple) and all(map(_is_text, blocks)))
        document = {
            "functions": {name: _reference_json(each) for name, each in own.items() if each is not None},
            "options": {name: list(v) if isinstance(v, tuple) else v for name, v in plain.items()},
            "blocks": blocks if is_text else None,
            "described": dict(described),
            "sources": dict(self.sources),
        }
        state = {"samples": self.samples, "train": self._train_samples(), "initial": self._initial()}
        skeleton, arrays = state_to_arrays(state, "the evaluation samples")
        facts = {"skeleton": json.dumps(skeleton)}
        facts[SHA256] = arrays_hash(arrays, facts)
        write_atomic(folder / SAMPLES, safetensors.numpy.save(arrays, metadata=facts))
        write_atomic(folder / LOOP, (json.dumps(with_hash(document), indent=1) + "\n").encode())

    def _train_samples(self) -> Any:
        given = self.options.get("train_batches")
        return None if given is None else joined_samples(given)

    def _initial(self) -> Any:
        given = self.options.get("initial")
        return given.state_dict() if isinstance(given, nn.Module) else given

    @staticmethod
    def load(folder: Path) -> MeasurePlan:
        """The plan that `save` wrote; refused if a function cannot be imported, or a file was changed."""
        document = read_loop(folder)
        fault = fault_of(folder / SAMPLES, "Audit again with resume to write it.")
        arrays, facts = read_safetensors(folder / SAMPLES, fault)
        if facts.get(SHA256) != arrays_hash(arrays, facts):
            raise ChangedPlanError(folder / SAMPLES)
        state = checked_state(parse_json(facts.get("skeleton", ""), fault), arrays, fault)
        if not isinstance(state, dict) or not {"samples", "train", "initial"} <= state.keys():
            raise fault("has no evaluation samples")
        functions = {name: _function_of(each) for name, each in document["functions"].items() if name != "train"}
        if document["blocks"] is None:
            raise InputError(
                "blocks= was a list of modules, which is not stored. Name them by text to verify the card."
            )
        options = {**document["options"], "blocks": document["blocks"], "train_batches": None, "initial": None}
        options |= {name: functions[name] for name in FUNCTIONS if name in functions}
        if state["train"] is not None:
            options["train_batches"] = [state["train"]]
        if state["initial"] is not None:
            options["initial"] = state["initial"]
        return MeasurePlan(
            functions["build"],
            state["samples"],
            options,
            functions.get("step_fn"),
            document.get("sources", {}),  # Plans that were written before 0.13 have none.
        )


def uses_feedback(options: Mapping[str, Any], method: str) -> bool:
    """Whether a function that measures this method takes the stored feedback."""
    return any(
        _required(function) == count + 1
        for name, count in FUNCTIONS.items()
        if callable(function := _of_method(options, name, method))
    )


def _of_method(options: Mapping[str, Any], name: str, method: str) -> Any:
    """An option that may be a dict by method, and does not apply to backprop otherwise."""
    given = options.get(name)
    if isinstance(given, Mapping):
        return given.get(method)
    return None if method == BACKPROP else given


def read_loop(folder: Path) -> dict[str, Any]:
    """The document `loop.json` beside the jobs."""
    fault = fault_of(folder / LOOP, "Audit again with resume to write it.")
    document = read_object(folder / LOOP, fault)
    if document.get(SHA256) != document_hash(document):
        raise ChangedPlanError(folder / LOOP)
    check_schema(document, _LOOP, fault)
    return document


_LOOP: Schema = {
    "required": ["functions", "options", "blocks", "described"],
    "properties": {
        "functions": {"type": "object", "additionalProperties": {"type": "object"}},
        "options": {"type": "object"},
        "blocks": {"type": ["string", "array", "null"], "items": {"type": "string"}},
        "described": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}


def load_weights(model: nn.Module, state: Mapping[str, Any], device: torch.device, name: str) -> nn.Module:
    """The model with stored weights, on `device`; refused if they do not fit."""
    try:
        model.load_state_dict(state)
    except RuntimeError as error:
        problems = [" ".join(line.split()) for line in str(error).splitlines()[1:]] or [str(error)]
        more = f" And {len(problems) - 1} more." if len(problems) > 1 else ""
        raise InputError(f"The weights of {name} do not fit the model of build: {problems[0]}{more}") from error
    return model.to(device)


def references(given: Any) -> list[FunctionReference]:
    """The references of a function, or of a dict of functions by method."""
    each = given.values() if isinstance(given, Mapping) else [given]
    return [FunctionReference.of(function) for function in each if callable(function)]


def _reference_json(given: Any) -> Any:
    if isinstance(given, Mapping):
        return {"by_method": {name: _reference_json(each) for name, each in given.items()}}
    return FunctionReference.of(given).to_json() if callable(given) else {"value": given}


def _function_of(stored: Mapping[str, Any]) -> Any:
    if "by_method" in stored:
        return {name: _function_of(each) for name, each in stored["by_method"].items()}
    return stored["value"] if "value" in stored else FunctionReference.from_json(dict(stored)).load()


def _with_feedback(function: Callable[..., Any], feedback: Any, *arguments: Any) -> Any:
    return function(*arguments, feedback)


def _required(function: Callable[..., Any]) -> int:
    """The number of positional arguments without a default."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 0
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(each.kind in kinds and each.default is inspect.Parameter.empty for each in parameters)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)
