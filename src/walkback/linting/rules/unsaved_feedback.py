"""Feedback that is not saved: a plain tensor attribute, a non-persistent buffer, or missing from `torch.save`.

Why: `state_dict()` contains parameters and persistent buffers only. A feedback matrix kept as a plain tensor is drawn
again when the checkpoint is loaded, and alignment is specific to the matrix trained with; scripts that then fall back
to the backprop gradient report a cosine of exactly 1.0.
Instead: keep feedback in `register_buffer(...)` or `nn.Parameter(..., requires_grad=False)`, or save it beside the
model, and refuse to measure without it.
Pitfall: 7, 4
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from walkback.linting.identifier_words import (
    FEEDBACK_WORDS,
    argument,
    name_of,
    split_identifier,
    words_of_all_names,
    words_of_name,
)
from walkback.linting.random_draws import is_drawn
from walkback.linting.rule import Hit, Rule
from walkback.linting.source import Source

_EMPTY_CALLS = {"torch.empty", "torch.zeros", "torch.empty_like", "torch.zeros_like"}
_ERROR_WORDS = {"error", "errors", "delta", "deltas"}
CONTEXT_WORDS = FEEDBACK_WORDS | {"dfa", "drtp", "alignment", "credit", "credits"}
STATE_METHODS = {"state_dict", "get_extra_state", "_save_to_state_dict"}


def find(source: Source) -> Iterator[Hit]:
    context = {word for node in source.nodes(ast.Name) for word in split_identifier(node.id)}
    context |= {word for node in source.nodes(ast.ClassDef) for word in split_identifier(node.name)}
    context |= {word for node in source.nodes(ast.FunctionDef) for word in split_identifier(node.name)}
    context |= {word for node in source.nodes(ast.Attribute) for word in split_identifier(node.attr)}
    is_about_feedback = bool(context & CONTEXT_WORDS) or any(_projects_error(node) for node in source.nodes(ast.BinOp))
    saves = [call for call in source.nodes(ast.Call) if source.called_name(call) == "torch.save" and call.args]
    if any(_mentions_feedback(save.args[0]) for save in saves):
        return
    for owner in source.nodes(ast.ClassDef):
        if _is_module(source, owner) and not any(f.name in STATE_METHODS for f in source.nodes(ast.FunctionDef, owner)):
            yield from _in_module(source, owner, is_about_feedback)
    yield from _in_script(source, saves, is_about_feedback)


def _in_module(source: Source, owner: ast.ClassDef, is_about_feedback: bool) -> Iterator[Hit]:
    registered = set()
    for call in source.nodes(ast.Call, owner):
        given = call.args[0] if call.args else None
        if name_of(call) in ("register_buffer", "register_parameter") and isinstance(given, ast.Constant):
            name = str(given.value)
            registered.add(name)
            persistent = argument(call, 2, "persistent")
            is_not_saved = isinstance(persistent, ast.Constant) and persistent.value is False
            if is_not_saved and _is_feedback(name, is_about_feedback):
                yield call, f"the buffer '{name}' is not persistent: no checkpoint will contain this feedback"
    filled = {name for call in source.nodes(ast.Call, owner) if (name := _attribute_filled_by(source, call))}
    for node in source.nodes(ast.AST, owner):
        for name, value in _attributes_set(source, node):
            is_saved = name in registered or not _is_feedback(name, is_about_feedback)
            is_filled = name in filled and source.called_name(value) in _EMPTY_CALLS
            if not is_saved and (is_filled or is_drawn(source, value)):
                yield node, f"self.{name} is a plain tensor: state_dict() will not contain this feedback"  # type: ignore[misc]


def _attributes_set(source: Source, node: ast.AST) -> Iterator[tuple[str, ast.expr]]:
    """(name, value) of `self.name = value`, `setattr(self, "name", value)` and `self.name.append(value)`."""
    match node:
        case ast.Assign(targets=targets, value=value):
            for target in targets:
                if isinstance(target, ast.Attribute) and name_of(target.value) == "self":
                    yield target.attr, value
        case ast.AnnAssign(target=ast.Attribute(value=ast.Name(id="self"), attr=name), value=ast.expr() as value):
            yield name, value
        case ast.Call(func=ast.Name(id="setattr"), args=[ast.Name(id="self"), name_given, value]):
            yield "".join(str(part.value) for part in ast.walk(name_given) if isinstance(part, ast.Constant)), value
        case ast.Call(func=ast.Attribute(value=ast.Attribute() as held, attr="append"), args=[value]):
            is_plain_list = any(isinstance(v, ast.List) for v in source.attribute_values(held.attr))
            if name_of(held.value) == "self" and is_plain_list:
                # A Parameter that is appended is in a plain list too.
                yield held.attr, ast.List(elts=[value])


def _attribute_filled_by(source: Source, call: ast.Call) -> str:
    """The attribute that `nn.init.normal_(self.name)` or `self.name.normal_()` fills with random numbers."""
    match call:
        case ast.Call(args=[ast.Attribute(value=ast.Name(id="self"), attr=name), *_]) if is_drawn(source, call):
            return name
        case ast.Call(func=ast.Attribute(value=ast.Attribute(value=ast.Name(id="self"), attr=name))) if is_drawn(
            source, call
        ):
            return name
    return ""


def _projects_error(node: ast.BinOp) -> bool:
    """Whether an expression is `error @ B`."""
    return isinstance(node.op, ast.MatMult) and bool(words_of_name(node.left) & _ERROR_WORDS)


def _in_script(source: Source, saves: list[ast.Call], is_about_feedback: bool) -> Iterator[Hit]:
    drawn = [
        target.id
        for assign in source.nodes(ast.Assign)
        for target in assign.targets
        if isinstance(target, ast.Name)
        and _is_feedback(target.id, is_about_feedback)
        and is_drawn(source, assign.value)
    ]
    for save in saves:
        if drawn and _is_state_dict(save.args[0]):
            yield save, f"the feedback '{drawn[0]}' is drawn in this file, but only the model's state_dict() is saved"


def _is_module(source: Source, owner: ast.ClassDef) -> bool:
    return any(
        source.qualified_name(base).startswith("torch.nn.") or "module" in split_identifier(name_of(base))
        for base in owner.bases
    )


def _is_feedback(name: str, is_about_feedback: bool) -> bool:
    """Whether a name is feedback; the papers' letter B only in files about feedback, as Fourier features use it too."""
    words = split_identifier(name)
    return bool(words & FEEDBACK_WORDS or ("backward" in words and words & {"weight", "weights"})) or (
        is_about_feedback and re.fullmatch(r"_?Bs?_?\d*", name) is not None
    )


def _is_state_dict(node: ast.expr) -> bool:
    if isinstance(node, ast.Dict):
        return any(_is_state_dict(value) for value in node.values)
    return isinstance(node, ast.Call) and name_of(node) == "state_dict"


def _mentions_feedback(node: ast.expr) -> bool:
    keys = {word for n in ast.walk(node) if isinstance(n, ast.Constant) for word in split_identifier(str(n.value))}
    named = {name_of(n) for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute)}
    return bool((words_of_all_names(node) | keys) & FEEDBACK_WORDS) or any(_is_feedback(name, True) for name in named)


RULE = Rule.of("WB007", __doc__, find)
