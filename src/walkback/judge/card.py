"""Read an audit card strictly: an error names the key that does not fit.

The structure is `card_schema.schema()`. The few JSON Schema keywords it uses are checked here, so that reading a card
needs no further package; a test compares this reader with the `jsonschema` package.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from walkback.core.errors import InputError
from walkback.core.files import friendly_os_errors
from walkback.judge.card_schema import HASH, READ_FORMATS, schema
from walkback.judge.flag import STATUS_TEXT

CORE_CHECKS = ("D1", "D2", "direction", "D3", "concentration")
"""Every card has these checks, once each; it may have others."""

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "number": (int, float),
    "integer": (int,),
    "boolean": (bool,),
    "null": (type(None),),
}


class CheckedCard(dict[str, Any]):
    """A card that this process has made, or has read and checked: `read_card` does not check it again.

    A copy is a plain dict, which is checked, so that a changed copy is refused.
    """

    def copy(self) -> dict[str, Any]:
        return dict(self)

    def __copy__(self) -> dict[str, Any]:
        return dict(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return deepcopy(dict(self), memo)

    def __setitem__(self, key: str, value: Any) -> None:
        raise TypeError(f"this card is sealed; change '{key}' in a copy of it")


def seal(card: Mapping[str, Any]) -> dict[str, Any]:
    """The card with its own hash. The hash shows accidental or careless changes; whoever knows how can recompute it."""
    return {**card, HASH: card_hash(card)}


def card_hash(card: Mapping[str, Any]) -> str:
    """sha256 of the card's canonical JSON without the hash itself."""
    rest = {key: value for key, value in card.items() if key != HASH}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def read_card(source: str | Path | Mapping[str, Any], *, as_it_is: bool = False) -> dict[str, Any]:
    """The card in a file, or one already loaded, with its structure, consistency and hash checked.

    A card that was changed after it was written is refused. With `as_it_is` only the structure is checked, so that
    `walkback verify` can say what was changed.
    """
    if isinstance(source, CheckedCard):
        return source
    where = "The card" if isinstance(source, Mapping) else f"The card {source}"
    card = dict(source) if isinstance(source, Mapping) else _load(Path(source))
    if card.get("format") not in READ_FORMATS or isinstance(card.get("format"), bool):
        expected = " or ".join(map(str, READ_FORMATS))
        raise InputError(
            f"{where} has the format {card.get('format')!r}; expected {expected}. It is from another version of "
            "walkback, or is not an audit card: judge the run again."
        )
    _check(card, schema(card["format"]), "", where)
    if not as_it_is:
        _check_consistency(card, where)
        if card[HASH] != card_hash(card):
            raise InputError(
                f"{where} was changed after it was written: its hash does not fit its content, so its numbers are not "
                "those that were judged. `walkback verify` says what differs; `walkback diagnose` judges the run again."
            )
        return CheckedCard(card)
    return card


def _load(path: Path) -> dict[str, Any]:
    with friendly_os_errors(path, "read"):
        data = path.read_bytes()
    try:
        card = json.loads(data, parse_constant=_refuse)
    except ValueError as error:  # Raised for text that is not UTF-8, too.
        raise InputError(f"The card {path} is not JSON: {error}. It may be cut off: judge the run again.") from error
    if not isinstance(card, dict):
        raise InputError(f"The card {path} holds no JSON object, but a {type(card).__name__}. Judge the run again.")
    return card


def _refuse(word: str) -> None:
    raise ValueError(f"it contains {word}, which is no number")


def _check(value: Any, rule: Mapping[str, Any], key: str, where: str) -> None:
    if "const" in rule and (value != rule["const"] or isinstance(value, bool)):
        raise _wrong(where, key, value, repr(rule["const"]))
    if "enum" in rule and value not in rule["enum"]:
        raise _wrong(where, key, value, "one of " + ", ".join(map(repr, rule["enum"])))
    if "type" in rule:
        kinds = [rule["type"]] if isinstance(rule["type"], str) else rule["type"]
        if not any(_is(value, kind) for kind in kinds):
            raise _wrong(where, key, value, " or ".join(kinds))
    if _is(value, "number"):
        low, high = rule.get("minimum", -math.inf), rule.get("maximum", math.inf)
        if not low <= value <= high:
            raise _wrong(where, key, value, f"a number from {low} to {high}")
    if isinstance(value, dict):
        _check_object(value, rule, key, where)
    if isinstance(value, list):
        if not rule.get("minItems", 0) <= len(value) <= rule.get("maxItems", math.inf):
            raise _wrong(where, key, value, f"{rule['minItems']} entries")
        for index, item in enumerate(value):
            _check(item, rule.get("items", {}), f"{key}[{index}]", where)


def _check_object(value: dict[str, Any], rule: Mapping[str, Any], key: str, where: str) -> None:
    prefix = f"{key}." if key else ""
    for name in rule.get("required", ()):
        if name not in value:
            raise InputError(f"{where} lacks the key '{prefix}{name}'. It may be damaged: judge the run again.")
    known = rule.get("properties", {})
    for name, item in value.items():
        if name in known:
            _check(item, known[name], f"{prefix}{name}", where)
        elif rule.get("additionalProperties") is False:
            raise InputError(f"{where} has the key '{prefix}{name}', which is not known. Remove it or judge again.")


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool) and kind != "boolean":
        return False
    return isinstance(value, _TYPES[kind]) and not (isinstance(value, float) and not math.isfinite(value))


def _wrong(where: str, key: str, value: Any, expected: str) -> InputError:
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    return InputError(f"{where} has {shown} at the key '{key}'; expected {expected}. Judge the run again.")


def _check_consistency(card: Mapping[str, Any], where: str) -> None:
    """Refuse a card whose parts contradict each other, which a schema cannot express."""
    decided = card["verdicts"].get(card["protocol"])
    if decided is None:
        raise _wrong(where, "protocol", card["protocol"], f"one of {', '.join(card['verdicts'])}")
    for key in ("verdict", "sentence"):
        if card[key] != decided[key]:
            raise _wrong(where, key, card[key], f"{decided[key]!r} as at 'verdicts.{card['protocol']}.{key}'")
    ids = [check["id"] for check in card["checks"]]
    for name in CORE_CHECKS:
        if ids.count(name) != 1:
            raise InputError(
                f"{where} has the check '{name}' {ids.count(name)} times at the key 'checks'; expected once."
            )
    for index, check in enumerate(card["checks"]):
        if check["shown"] not in (STATUS_TEXT[check["status"]], "INVALID" if check["status"] == "missing" else ""):
            raise _wrong(where, f"checks[{index}].shown", check["shown"], f"the word for {check['status']!r}")
    layers = [layer["layer"] for layer in card["layers"]]
    if layers != list(range(card["measured"]["layers"])):
        raise _wrong(where, "layers", layers, f"the {card['measured']['layers']} layers in order")
    _check_numbers(card, "", where)


def _check_numbers(value: Any, key: str, where: str) -> None:
    """Refuse a number with status "ok" and no value, or with another status and a value or no reason."""
    if isinstance(value, dict):
        if value.keys() == {"value", "status", "reason"}:
            contradicts = (value["value"] is None) == (value["status"] == "ok")
            if contradicts or (value["status"] != "ok" and not value["reason"]):
                raise _wrong(where, key, value, "a value where the status is 'ok', and otherwise null and a reason")
        for name, item in value.items():
            if name != "provenance":
                _check_numbers(item, f"{key}.{name}" if key else name, where)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_numbers(item, f"{key}[{index}]", where)
