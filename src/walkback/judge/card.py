"""Read an audit card strictly: an error names the key that does not fit.

The structure is `card_schema.schema()`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from copy import deepcopy
from pathlib import Path
from typing import Any

from walkback.core.errors import InputError
from walkback.core.reading.json_text import read_object
from walkback.core.reading.regular_files import Fault, fault_of
from walkback.core.reading.schema import check_schema, wrong_value
from walkback.judge.card_schema import HASH, READ_FORMATS, schema
from walkback.judge.flag import STATUS_TEXT

CORE_CHECKS = ("D1", "D2", "direction", "D3", "concentration")
"""Every card has these checks, once each; it may have others."""


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
    if "rows" in card and HASH not in card:
        raise InputError(f"{where} is the overview of an audit; expected the report.json of one of its runs.")
    if card.get("format") not in READ_FORMATS or isinstance(card.get("format"), bool):
        expected = " or ".join(map(str, READ_FORMATS))
        raise InputError(
            f"{where} has the format {card.get('format')!r}; expected {expected}. It is from another version of "
            "walkback, or is not an audit card: judge the run again."
        )
    check_schema(card, schema(card["format"]), _fault(where))
    if not as_it_is:
        _check_consistency(card, where)
        if card[HASH] != card_hash(card):
            raise InputError(
                f"{where} was changed after it was written: its hash does not fit its content, so its numbers are not "
                "those that were judged. `walkback verify` says what differs; `walkback diagnose` judges the run again."
            )
        return CheckedCard(card)
    return card


def _fault(where: str) -> Fault:
    return fault_of(where, "Judge the run again.")


def _load(path: Path) -> dict[str, Any]:
    # The user names it, so it may be a link.
    return read_object(path, fault_of(f"The card {path}", "It may be cut off: judge the run again."), follow=True)


def _check_consistency(card: Mapping[str, Any], where: str) -> None:
    """Refuse a card whose parts contradict each other, which a schema cannot express."""
    decided = card["verdicts"].get(card["protocol"])
    if decided is None:
        raise wrong_value(_fault(where), "protocol", card["protocol"], f"one of {', '.join(card['verdicts'])}")
    for key in ("verdict", "sentence"):
        if card[key] != decided[key]:
            raise wrong_value(
                _fault(where), key, card[key], f"{decided[key]!r} as at 'verdicts.{card['protocol']}.{key}'"
            )
    ids = [check["id"] for check in card["checks"]]
    for name in CORE_CHECKS:
        if ids.count(name) != 1:
            raise InputError(
                f"{where} has the check '{name}' {ids.count(name)} times at the key 'checks'; expected once."
            )
    for index, check in enumerate(card["checks"]):
        if check["shown"] not in (STATUS_TEXT[check["status"]], "INVALID" if check["status"] == "missing" else ""):
            raise wrong_value(
                _fault(where), f"checks[{index}].shown", check["shown"], f"the word for {check['status']!r}"
            )
    layers = [layer["layer"] for layer in card["layers"]]
    if layers != list(range(card["measured"]["layers"])):
        raise wrong_value(_fault(where), "layers", layers, f"the {card['measured']['layers']} layers in order")
    _check_numbers(card, "", where)


def _check_numbers(value: Any, key: str, where: str) -> None:
    """Refuse a number with status "ok" and no value, or with another status and a value or no reason."""
    if isinstance(value, dict):
        if value.keys() == {"value", "status", "reason"}:
            contradicts = (value["value"] is None) == (value["status"] == "ok")
            if contradicts or (value["status"] != "ok" and not value["reason"]):
                raise wrong_value(
                    _fault(where), key, value, "a value where the status is 'ok', and otherwise null and a reason"
                )
        for name, item in value.items():
            if name != "provenance":
                _check_numbers(item, f"{key}.{name}" if key else name, where)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            _check_numbers(item, f"{key}[{index}]", where)
