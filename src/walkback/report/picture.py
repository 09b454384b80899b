"""The picture of a card, and what the pictures of cards and audit pages show, in words."""

from __future__ import annotations

from dataclasses import dataclass

from markupsafe import Markup

from walkback.judge.glossary import PICTURE_KEY
from walkback.judge.statistics import NATS
from walkback.report.accuracy_plot import (
    accuracy_name,
    accuracy_plot,
    accuracy_texts,
    interval_words,
    marks_of,
    needed_value,
    span_of,
)
from walkback.report.cells import size
from walkback.report.cosine_plot import block_marks, block_texts, cosine_plot, cosine_range, without_blocks
from walkback.report.sections import Card


def plots_key(*cards: Card) -> Markup:
    """What the plots of these cards show, in words that need no manual; all were judged alike."""
    card = cards[0]
    is_loss = card["statistics"]["unit"] == NATS
    unit = "nats" if is_loss else "percentage points (pp)"
    line = _threshold(card, "frozen_loss_margin_nats" if is_loss else "frozen_acc_margin_pp")
    return Markup(
        "Bars: {}. Dashed: what the depth claim asks for, {} {} over the frozen blocks. "
        "Shaded: a block’s null, ±{} standard deviations (sd) of the cosine of its training signal "
        "(credit) when that is rotated at random. Open dots of cosines: the gradient by construction. "
        "Numbers appear under the pointer, or with the Tab key."
    ).format(" or ".join(dict.fromkeys(map(interval_words, cards))), line, unit, _threshold(card, "null_z"))


def chips_key(card: Card) -> Markup:
    """What the checks and claims beside the plots are about."""
    key = ". ".join(f"{term}: {text}" for term, text in PICTURE_KEY.items())
    marks = "✓ passes or may be claimed, ✗ fails or may not, ? not decided, – not applicable."
    return Markup(f"{key}. {marks}").format(
        growth=_threshold(card, "h_norm_explosion_ratio"),
        floor=_threshold(card, "g_norm_floor"),
        what="loss" if card["statistics"]["unit"] == NATS else "accuracy",
    )


def _threshold(card: Card, name: str) -> Markup:
    """A threshold in a text; the audit page's script replaces it when it is moved."""
    return Markup('<span data-threshold="{}">{}</span>').format(name, size(card["thresholds"][name]))


@dataclass(frozen=True)
class CardPicture:
    """The two plots of one card."""

    accuracy_name: str
    ticks: tuple[tuple[str, str], ...]
    accuracy: Markup
    accuracy_texts: tuple[str, ...]
    cosines: Markup
    cosine_texts: tuple[str, ...]


def card_picture(card: Card) -> CardPicture | None:
    """The plots of one card; None if it has neither accuracies nor cosines."""
    marks, blocks = marks_of(card), block_marks([card])
    if not marks and not blocks:
        return None
    is_loss, null_z, span = card["statistics"]["unit"] == NATS, card["thresholds"]["null_z"], span_of(marks)
    ticks = span.ticks(percent=not is_loss) if marks else []
    needed = needed_value(card, marks[1].mean) if [mark.lane for mark in marks[:2]] == ["own", "frozen"] else None
    return CardPicture(
        accuracy_name=accuracy_name(card),
        ticks=tuple(ticks),
        accuracy=accuracy_plot(marks, span, ticks, needed),
        accuracy_texts=accuracy_texts(marks, is_loss),
        cosines=cosine_plot(blocks, cosine_range([blocks], null_z), null_z, without_blocks([card])),
        cosine_texts=tuple(block_texts(blocks, without_blocks([card]))),
    )
