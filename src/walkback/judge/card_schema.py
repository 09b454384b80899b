"""The structure of an audit card, and its JSON schema, generated from the dataclasses that a card consists of.

A new threshold or a new field of a part is in the schema by being in its dataclass.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, Any, Final, Literal

from walkback.judge.aggregates import Aggregates
from walkback.judge.blocks import Block
from walkback.judge.card_part import AccuracySeeds, CardPart, JsonChoice, JsonKeys, JsonLimits, NonNegative
from walkback.judge.checklist import ChecklistItem
from walkback.judge.claim import Claim
from walkback.judge.editions import CLAIMS_EDITION, PROTOCOLS, Outcome, Verdict
from walkback.judge.evidence import NULLS, ORACLES, OracleAccuracies, TestLosses
from walkback.judge.failure_modes import Mode, Step
from walkback.judge.flag import Flag
from walkback.judge.layers import Layer
from walkback.judge.number import Number
from walkback.judge.rejudging import Rejudging
from walkback.judge.thresholds import DiagnosticThresholds

CARD_FORMAT: Final = 2
"""The format of the cards that are written."""
READ_FORMATS: Final = (1, 2)
"""The formats that are read. Cards of format 1, of versions before 0.11, lack the edition `claims`, the claim `credit`
and the keys that parts list in `JSON_LATER`."""
HASH = "hash"
"""The key under which a card carries its own hash."""


@dataclass(frozen=True)
class CardClaim(CardPart):
    """What was claimed: the method, where it was trained, and the accuracies of each seed."""

    method: str
    arch: str
    data: str
    digest: str
    seed: int | None
    notes: str
    seeds: tuple[int, ...]
    headline_acc: AccuracySeeds
    frozen: Annotated[Mapping[str, AccuracySeeds], JsonKeys(tuple(NULLS), required=False)]
    bp_acc: AccuracySeeds
    null: Annotated[str, JsonChoice(tuple(NULLS))]
    alignment: Number
    test_samples: NonNegative | None = None
    oracles: Annotated[Mapping[str, OracleAccuracies], JsonKeys(tuple(ORACLES), required=False)] = field(
        default_factory=dict
    )

    losses: TestLosses | None = None

    JSON_KEYS = (
        "method", "arch", "data", "digest", "seed", "notes", "seeds", "headline_acc", "frozen", "bp_acc", "null",
        "alignment", "test_samples", "oracles", "losses",
    )  # fmt: skip
    JSON_OPTIONAL = ("losses",)
    JSON_LATER = ("test_samples", "oracles", "losses")

    def to_json(self) -> dict[str, Any]:
        """Losses are written where there are some."""
        return {key: value for key, value in super().to_json().items() if key != "losses" or value}


@dataclass(frozen=True)
class CardMeasured(CardPart):
    """How much was measured, and of what."""

    layers: NonNegative
    samples: NonNegative
    groups: NonNegative
    dtype: str
    pool: str | None
    site: str | None
    sample_hash: str | None
    found: tuple[str, ...]
    error_norm: Number
    grad_over_error: Number
    deep_layers: tuple[NonNegative, ...]


@dataclass(frozen=True)
class CardStatistics(CardPart):
    """The margin over the deciding frozen baseline, and what its number of seeds can show."""

    n: NonNegative
    counts: str
    pairing: str
    mean: float | None
    sd: float | None
    interval: tuple[float, float] | None
    confidence: float
    minimum_detectable_margin: float | None
    words: str
    ddof: Literal[1] = 1
    unit: Literal["pp", "nats"] = "pp"

    JSON_KEYS = (
        "n", "counts", "ddof", "pairing", "mean", "sd", "interval", "confidence", "minimum_detectable_margin", "unit",
        "words",
    )  # fmt: skip


@dataclass(frozen=True)
class AuditCard(CardPart):
    """Everything a card says, without its hash."""

    walkback: str
    verdict: Outcome
    sentence: str
    protocol: Annotated[str, JsonChoice(tuple(PROTOCOLS))]
    verdicts: Annotated[Mapping[str, Verdict], JsonKeys(tuple(PROTOCOLS), later=(CLAIMS_EDITION,))]
    claim: CardClaim
    checks: tuple[Flag, ...]
    claims: Annotated[Mapping[str, Claim], JsonKeys(("alignment", "depth", "credit"), later=("credit",))]
    chain: tuple[Step, ...]
    modes: tuple[Mode, ...]
    measured: CardMeasured
    layers: tuple[Layer, ...]
    aggregates: Aggregates
    statistics: CardStatistics
    thresholds: DiagnosticThresholds
    provenance: Mapping[str, Any]
    limits: tuple[str, ...]
    checklist: tuple[ChecklistItem, ...]
    rerun: tuple[str, ...]
    claimed: tuple[str, ...] = ()
    blocks: tuple[Block, ...] = ()
    rejudging: Rejudging | None = None
    format: Literal[1, 2] = CARD_FORMAT

    JSON_KEYS = (
        "format", "walkback", "verdict", "sentence", "protocol", "verdicts", "claim", "checks", "claims", "claimed",
        "chain", "modes", "measured", "layers", "blocks", "aggregates", "statistics", "thresholds", "rejudging",
        "provenance", "limits", "checklist", "rerun",
    )  # fmt: skip
    JSON_OPTIONAL = ("blocks", "rejudging")
    JSON_LATER = ("claimed", "rejudging")

    def to_json(self) -> dict[str, Any]:
        """Without the optional keys where they hold nothing, as in cards of older versions."""
        return {key: value for key, value in super().to_json().items() if value or key not in self.JSON_OPTIONAL}


@cache
def schema(card_format: int = CARD_FORMAT) -> dict[str, Any]:
    """The JSON schema of report.json (draft 2020-12), in this format."""
    card = schema_of(AuditCard, card_format)
    sealed = {
        "type": "string",
        "description": "sha256 of the card's JSON without this key: keys sorted, no spaces, non-ASCII escaped",
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "walkback audit card",
        "description": (
            f"report.json, format {card_format}: a verdict, the numbers behind it, and what would change it. "
            "A number whose precondition failed has the value null and says why."
        ),
        **card,
        "properties": {**card["properties"], "format": {"const": card_format}, HASH: sealed},
        "required": [*card["required"], HASH],
    }


_SCALARS: dict[Any, str] = {str: "string", bool: "boolean", int: "integer", float: "number"}


def schema_of(hint: Any, card_format: int = CARD_FORMAT) -> dict[str, Any]:
    """The JSON schema of a type hint: scalars, Literal, X | None, tuple, Mapping, Annotated and card parts."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, type) and hint in _SCALARS:
        return {"type": _SCALARS[hint]}
    if origin is Annotated:
        return _annotated(arguments[0], arguments[1], card_format)
    if origin is Literal:
        return {"const": arguments[0]} if len(arguments) == 1 else {"enum": list(arguments)}
    if origin in (typing.Union, types.UnionType):
        (one,) = (schema_of(option, card_format) for option in arguments if option is not type(None))
        return {**one, "type": [one["type"], "null"]}
    if origin is tuple:
        size = {} if arguments[-1] is ... else {"minItems": len(arguments), "maxItems": len(arguments)}
        return {"type": "array", "items": schema_of(arguments[0], card_format), **size}
    if origin is Mapping:
        return {"type": "object"}
    assert isinstance(hint, type), f"no JSON schema for the type {hint}"
    assert issubclass(hint, CardPart), f"no JSON schema for the type {hint}"
    return _part(hint, card_format)


def _annotated(hint: Any, note: JsonLimits | JsonChoice | JsonKeys, card_format: int) -> dict[str, Any]:
    if isinstance(note, JsonLimits):
        limits = {"minimum": note.minimum, "maximum": note.maximum}
        return {**schema_of(hint), **{name: limit for name, limit in limits.items() if limit is not None}}
    if isinstance(note, JsonChoice):
        return {"enum": list(note.names)}
    value = schema_of(typing.get_args(hint)[1], card_format)
    names = [name for name in note.names if card_format > 1 or name not in note.later]
    return _object(dict.fromkeys(names, value), names if note.required else [])


def _part(part: type[CardPart], card_format: int) -> dict[str, Any]:
    hints = typing.get_type_hints(part, include_extras=True)
    properties = {}
    later = part.JSON_LATER if card_format == 1 else ()
    for key in part.json_keys():
        if key in later:
            continue
        name = part.JSON_ATTRIBUTES.get(key, key)
        if name not in hints:  # A property: its type is what it returns.
            hints[name] = typing.get_type_hints(getattr(part, name).fget, include_extras=True)["return"]
        properties[key] = schema_of(hints[name], card_format)
    required = part.json_keys() if part.JSON_REQUIRED is None else part.JSON_REQUIRED
    return _object(properties, [key for key in required if key in properties and key not in part.JSON_OPTIONAL])


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
