"""Feedback that a checkpoint will not hold: a plain tensor attribute, a non-persistent buffer, or not in the save.

Why: `state_dict()` holds parameters and persistent buffers only. A feedback matrix kept as a plain tensor is drawn
anew when the checkpoint is loaded, and alignment is specific to the matrix trained with; scripts that then fall back
to the backprop gradient report a cosine of exactly 1.0.
Instead: keep feedback in `register_buffer(...)` or `nn.Parameter(..., requires_grad=False)`, or save it beside the
model, and refuse to measure without it.
Pitfall: 7, 4
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from walkback.linting.names import FEEDBACK, all_words, argument, name_of, name_words
from walkback.linting.rule import Hit, Rule
from walkback.linting.source import Source

_DRAWS = {f"torch.{name}" for name in ("randn", "rand", "randn_like", "rand_like", "normal", "randint")}
CONTEXT = FEEDBACK | {"dfa", "drtp", "alignment", "credit", "credits"}
OVERRIDES = {"state_dict", "get_extra_state", "_save_to_state_dict"}


def find(source: Source) -> Iterator[Hit]:
    context = {word for node in source.all(ast.Name) for word in name_words(node.id)}
    context |= {word for node in source.all(ast.ClassDef) for word in name_words(node.name)}
    context |= {word for node in source.all(ast.FunctionDef) for word in name_words(node.name)}
    context |= {word for node in source.all(ast.Attribute) for word in name_words(node.attr)}
    is_about_feedback = bool(context & CONTEXT)
    saves = [call for call in source.all(ast.Call) if source.calls(call) == "torch.save" and call.args]
    if any(_mentions_feedback(save.args[0]) for save in saves):
        return
    for owner in source.all(ast.ClassDef):
        if _is_module(source, owner) and not any(f.name in OVERRIDES for f in source.all(ast.FunctionDef, owner)):
            yield from _in_module(source, owner, is_about_feedback)
    yield from _in_script(source, saves, is_about_feedback)


def _in_module(source: Source, owner: ast.ClassDef, is_about_feedback: bool) -> Iterator[Hit]:
    registered = set()
    for call in source.all(ast.Call, owner):
        given = call.args[0] if call.args else None
        if name_of(call) in ("register_buffer", "register_parameter") and isinstance(given, ast.Constant):
            name = str(given.value)
            registered.add(name)
            persistent = argument(call, 2, "persistent")
            is_lost = isinstance(persistent, ast.Constant) and persistent.value is False
            if is_lost and _is_feedback(name, is_about_feedback):
                yield call, f"the buffer '{name}' is not persistent: no checkpoint will hold this feedback"
    for assign in source.all(ast.Assign, owner):
        for target in assign.targets:
            own = isinstance(target, ast.Attribute) and name_of(target.value) == "self"
            name = name_of(target)
            is_kept = name in registered or not _is_feedback(name, is_about_feedback)
            if own and not is_kept and _is_drawn(source, assign.value):
                yield assign, f"self.{name} is a plain tensor: state_dict() will not hold this feedback"


def _in_script(source: Source, saves: list[ast.Call], is_about_feedback: bool) -> Iterator[Hit]:
    drawn = [
        target.id
        for assign in source.all(ast.Assign)
        for target in assign.targets
        if isinstance(target, ast.Name)
        and _is_feedback(target.id, is_about_feedback)
        and _is_drawn(source, assign.value)
    ]
    for save in saves:
        if drawn and _is_state_dict(save.args[0]):
            yield save, f"the feedback '{drawn[0]}' is drawn in this file, but only the model's state_dict() is saved"


def _is_module(source: Source, owner: ast.ClassDef) -> bool:
    return any(
        source.dotted(base).startswith("torch.nn.") or "module" in name_words(name_of(base)) for base in owner.bases
    )


def _is_feedback(name: str, is_about_feedback: bool) -> bool:
    """By its name; the papers' letter B only where the file speaks of feedback, for Fourier features have one, too."""
    return bool(name_words(name) & FEEDBACK) or (is_about_feedback and re.fullmatch(r"_?Bs?_?\d*", name) is not None)


def _is_drawn(source: Source, value: ast.expr) -> bool:
    """A tensor made here, or a list or dict of such; not a Parameter."""
    match value:
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return bool(parts) and all(_is_drawn(source, part) for part in parts)
        case ast.ListComp(elt=part) | ast.DictComp(value=part):
            return _is_drawn(source, part)
        case ast.BinOp(left=left, op=ast.Mult() | ast.Div(), right=right):
            return _is_drawn(source, left) or _is_drawn(source, right)
        case ast.Call(func=ast.Attribute(value=part)) if not source.calls(value):
            return _is_drawn(source, part)
    return source.calls(value) in _DRAWS


def _is_state_dict(node: ast.expr) -> bool:
    if isinstance(node, ast.Dict):
        return any(_is_state_dict(value) for value in node.values)
    return isinstance(node, ast.Call) and name_of(node) == "state_dict"


def _mentions_feedback(node: ast.expr) -> bool:
    keys = {word for n in ast.walk(node) if isinstance(n, ast.Constant) for word in name_words(str(n.value))}
    named = {name_of(n) for n in ast.walk(node) if isinstance(n, ast.Name | ast.Attribute)}
    return bool((all_words(node) | keys) & FEEDBACK) or any(_is_feedback(name, True) for name in named)


RULE = Rule.of("WB007", __doc__, find)
