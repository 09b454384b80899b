"""Check JSON data against a schema: the few keywords of JSON Schema that walkback's own files need.

`type`, `const`, `enum`, `minimum`, `maximum`, `minItems`, `maxItems`, `items`, `properties`, `required` and
`additionalProperties` (false, or the schema of further values). A test compares this with the package `jsonschema`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from walkback.core.errors import InputError
from walkback.core.reading.regular_files import Fault

Schema = Mapping[str, Any]

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}


def check_schema(value: Any, rule: Schema, fault: Fault, key: str = "") -> None:
    """Refuse a value that does not fit; the error names the key."""
    if "const" in rule and (value != rule["const"] or isinstance(value, bool)):
        raise wrong_value(fault, key, value, repr(rule["const"]))
    if "enum" in rule and value not in rule["enum"]:
        raise wrong_value(fault, key, value, "one of " + ", ".join(map(repr, rule["enum"])))
    if "type" in rule:
        kinds = [rule["type"]] if isinstance(rule["type"], str) else rule["type"]
        if not any(_is(value, kind) for kind in kinds):
            raise wrong_value(fault, key, value, " or ".join(kinds))
    if _is(value, "number"):
        low, high = rule.get("minimum", -math.inf), rule.get("maximum", math.inf)
        if not low <= value <= high:
            raise wrong_value(fault, key, value, f"a number from {low} to {high}")
    if isinstance(value, dict):
        _check_object(value, rule, fault, key)
    if isinstance(value, list):
        if not rule.get("minItems", 0) <= len(value) <= rule.get("maxItems", math.inf):
            raise wrong_value(fault, key, value, f"{rule.get('minItems', 0)} entries")
        items = rule.get("items")
        if items and not _are_plain(value, items):
            for index, item in enumerate(value):
                check_schema(item, items, fault, f"{key}[{index}]")


def _check_object(value: dict[str, Any], rule: Schema, fault: Fault, key: str) -> None:
    prefix = f"{key}." if key else ""
    for name in rule.get("required", ()):
        if name not in value:
            raise fault(f"lacks the key '{prefix}{name}'")
    known, others = rule.get("properties", {}), rule.get("additionalProperties")
    for name, item in value.items():
        if name in known:
            check_schema(item, known[name], fault, f"{prefix}{name}")
        elif others is False:
            raise fault(f"has the key '{prefix}{name}', which is not known")
        elif others:
            check_schema(item, others, fault, f"{prefix}{name}")


def _are_plain(values: list[Any], rule: Schema) -> bool:
    """Whether all fit a rule that asks for their type only; decided without a call for each: logs have millions."""
    if rule.keys() != {"type"}:
        return False
    kinds = [rule["type"]] if isinstance(rule["type"], str) else rule["type"]
    types = set(map(type, values))
    if not types <= {kind for name in kinds for kind in _TYPES[name]}:
        return False
    return float not in types or all(map(math.isfinite, (each for each in values if isinstance(each, float))))


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool) and kind != "boolean":
        return False
    return isinstance(value, _TYPES[kind]) and not (isinstance(value, float) and not math.isfinite(value))


def wrong_value(fault: Fault, key: str, value: Any, expected: str) -> InputError:
    """The error for a value at a key."""
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    return fault(f"has {shown} at the key '{key}'; expected {expected}")
