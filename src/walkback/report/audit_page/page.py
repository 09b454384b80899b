"""The HTML page of an audit: one self-contained file; moving thresholds and sorting a table need script."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import quote

from walkback.core.errors import InputError
from walkback.core.tuning import TuningTable
from walkback.judge.checklist import TODO
from walkback.judge.editions import PROTOCOLS
from walkback.judge.threshold_sweep import STRATEGIES
from walkback.report.audit_page import epochs, grid, layers, methods, table
from walkback.report.audit_page.judging import SLIDERS, can_be_judged_again, judging_data
from walkback.report.audit_page.member import EditionVerdict, Log, Member
from walkback.report.audit_page.sentence import audit_sentence
from walkback.report.captions import caption_facts, place_of
from walkback.report.cells import size
from walkback.report.html import pages, script, with_policy
from walkback.report.overview import Overview, overview
from walkback.report.picture import chips_key, plots_key
from walkback.report.sections import Card
from walkback.report.terms import explained_terms, explanation, term_id
from walkback.report.tuning import tuning_facts, tuning_section


def audit_page(
    cards: Sequence[Card],
    title: str,
    links: Sequence[str] = (),
    logs: Sequence[Log] = (),
    tuning: Sequence[TuningTable] = (),
) -> str:
    """The audit page of these cards.

    `links` are the paths of the cards' own pages, relative to this one, and `logs` the training logs of their runs,
    both in the cards' order; the log of a run without one is empty. `tuning` are the
    tables that learning rates were chosen by.
    """
    for name, given in (("links", links), ("logs", logs)):
        if given and len(given) != len(cards):
            message = f"Got {len(given)} {name} for {len(cards)} cards; expected one for each card, in their order."
            raise InputError(message)
    shown = overview(cards)
    targets = {card["hash"]: quote(link) for card, link in zip(cards, links or [""] * len(cards), strict=True)}
    members = _members(shown, dict(zip((card["hash"] for card in cards), logs or [()] * len(cards), strict=True)))
    found = shown.audit_table
    thresholds = cards[0]["thresholds"]
    picture = methods.shown_methods(members, found.rows)
    again = None
    if can_be_judged_again(cards):
        axes = {"low": picture.span.low, "high": picture.span.high, "ends": picture.cosine_ends}
        again = {**judging_data(found), "axes": axes}
    page = (
        pages()
        .get_template("audit.html")
        .render(
            title=title,
            place="" if cards[0]["claim"]["arch"] == TODO else place_of(cards, lambda text: text.partition(":")[0]),
            sentence=audit_sentence(found),
            picture=picture,
            keys=(plots_key(*cards), chips_key(cards[0])),
            judging=again,
            sliders={name: SLIDERS[name][0] for name in again["thresholds"]} if again else {},
            editions=PROTOCOLS,
            script=script,
            terms=explained_terms(),
            term_id=term_id,
            explanation=explanation,
            shown=shown,
            columns=table.columns(shown),
            rows=table.table_rows(shown),
            members=members,
            links=[[(card["claim"]["seed"], targets[card["hash"]]) for card in member.cards] for member in members],
            caption_facts=caption_facts(cards),
            layers=layers.layer_multiples(members),
            numbers={what: layers.layer_numbers(members, what) for what in layers.LAYER_QUANTITIES},
            null_z=f"{thresholds['null_z']:g}",
            floor=size(thresholds["g_norm_floor"]),
            epochs=epochs.epoch_multiples(members),
            first_alarm_heads=epochs.first_alarm_heads(members),
            first_alarms=epochs.first_alarm_rows(members),
            groups=grid.STRATEGY_GROUPS,
            strategies=STRATEGIES,
            grid=grid.conclusion_grid(members),
            tuning=[(tuning_section(table), tuning_facts(table)) for table in tuning],
        )
    )
    return with_policy(page)


def _members(shown: Overview, logs: dict[str, Log]) -> list[Member]:
    protocol = shown.audit_table.protocol
    return [
        Member(
            name=cells[0].text,
            verdict=EditionVerdict(row.rulings[protocol].outcome),
            cards=row.cards,
            logs=tuple(logs[card["hash"]] for card in row.cards),
        )
        for cells, row in zip(shown.rows, shown.audit_table.rows, strict=True)
    ]
