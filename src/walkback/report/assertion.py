"""`assert_trustworthy`: a verdict as a test of your own. The pytest plugin has it as a fixture of that name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from walkback.core.errors import InputError, unknown
from walkback.judge.card import read_card
from walkback.report.save import CARD

if TYPE_CHECKING:
    from walkback.judge.report import DiagnosticReport

HOLDING = ("stands", "trivial", "attributable_to_credit", "as_good_as_exact")
"""The outcomes of a claim that may be made."""


def assert_trustworthy(
    report: DiagnosticReport | Mapping[str, Any] | str | Path, claims: str | Sequence[str] = ()
) -> None:
    """Fail unless the verdict is trustworthy; with `claims`, unless each of these claims may be made.

    `report` is what `diagnose` returns, a card as a dict, a report.json, or the folder that it is in. `claims` are
    `depth`, `alignment` and `credit`. The message has every claim's outcome and reason.
    """
    __tracebackhide__ = True  # pytest shows the line of the test instead of this function.
    card = _card(report)
    wanted = (claims,) if isinstance(claims, str) else tuple(claims)
    for name in wanted:
        if name not in card["claims"]:
            raise unknown("claim", name, card["claims"])
    failing = [name for name in wanted if card["claims"][name]["outcome"] not in HOLDING]
    if failing if wanted else card["verdict"] != "trustworthy":
        raise AssertionError(_message(card, failing))


def _card(report: DiagnosticReport | Mapping[str, Any] | str | Path) -> Mapping[str, Any]:
    if isinstance(report, str | Path):
        path = Path(report)
        return read_card(path / CARD if path.is_dir() else path)
    if isinstance(report, Mapping):
        return read_card(report)
    if not hasattr(report, "to_json"):
        raise InputError(
            f"Got {type(report).__name__}; expected what walkback.diagnose returns, a card, or the path of a {CARD}."
        )
    return report.to_json()


def _message(card: Mapping[str, Any], failing: Sequence[str]) -> str:
    claim = card["claim"]
    place = ", ".join(part for part in (claim["arch"], claim["data"]) if not part.startswith("["))
    who = f"{claim['method']} ({place})" if place else str(claim["method"])
    expected = f"may not claim {' and '.join(failing)}" if failing else "is not trustworthy"
    verdict = str(card["verdict"]).replace("_", " ")
    lines = [f"{who} {expected}: {verdict} (edition {card['protocol']})"]
    lines += [f"  {name} {each['shown']}: {each['reason']}" for name, each in card["claims"].items()]
    failed = [check["id"] for check in card["checks"] if check["status"] == "raised"]
    return "\n".join([*lines, *([f"  checks that fail: {', '.join(failed)}"] if failed else [])])
