"""The alignment claim: does the credit point along the gradient in every block that it trains?

`alignment_facts` collects what one measured seed shows, `ALIGNMENT_TABLE` decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from walkback.judge.alignment_facts import AlignmentFacts, NullScore
from walkback.judge.claim import Claim, ClaimOutcome, claim_row
from walkback.judge.decision_table import TableRow, always, matching_row


def _below(facts: AlignmentFacts, fresh: bool) -> list[NullScore]:
    """The scores that do not exceed their null: those over rotations (the first), or those over fresh feedback."""
    judged = facts.scores[1:] if fresh else facts.scores[:1]
    return [score for score in judged if score.z < score.critical]


def _absent(fresh: bool) -> Callable[[AlignmentFacts], bool]:
    """Whether a null that is not exceeded also excludes a cosine worth speaking of."""
    return lambda facts: any(score.highest_cosine < facts.small for score in _below(facts, fresh))


def _absent_text(facts: AlignmentFacts) -> str:
    return f"{facts.scores_text}: not above its null, and a cosine of {facts.small:g} or more is excluded"


def _not_shown_text(facts: AlignmentFacts) -> str:
    score = (_below(facts, fresh=False) or _below(facts, fresh=True))[0]
    return (
        f"{facts.scores_text}: not above its null by {score.critical:.3g} standard deviations, but a cosine of "
        f"{facts.small:g} is not excluded either; more samples can narrow the null"
    )


def _failing_text(facts: AlignmentFacts, what: str) -> str:
    return f"{facts.scores_text}, but {what} is not above its null, and a cosine of {facts.small:g} or more is excluded"


def _unsure_text(facts: AlignmentFacts, what: str) -> str:
    return (
        f"{facts.scores_text}, but {what} is not above its null, where a cosine of {facts.small:g} is not excluded "
        "either; more samples can narrow the null"
    )


def _listed_blocks(blocks: Sequence[int]) -> str:
    return f"block{'s' * (len(blocks) > 1)} {', '.join(map(str, blocks))}"


ALIGNMENT_TABLE: tuple[TableRow[AlignmentFacts, Claim], ...] = (
    claim_row(
        "alignment", "frozen", lambda f: f.frozen, "not_applicable", "the blocks are frozen: no credit trains them"
    ),
    claim_row(
        "alignment",
        "no credit",
        lambda f: not f.has_credit and not f.has_update,
        "not_made",
        "neither a credit nor an update was measured",
    ),
    claim_row("alignment", "invalid", lambda f: bool(f.invalid), "invalid", lambda f: f.invalid),
    claim_row(
        "alignment",
        "exact",
        lambda f: f.all_exact,
        "trivial",
        "the credit that trains each block is the gradient by construction",
    ),
    claim_row(
        "alignment",
        "signs",
        lambda f: f.all_signs,
        "trivial",
        lambda f: f"aligned by construction (signs): the feedback has the signs of the weights; {f.scores_text}",
    ),
    claim_row("alignment", "noise", lambda f: bool(f.noise), "walked_back", lambda f: f.noise, "noise"),
    claim_row("alignment", "unsure", lambda f: bool(f.unsure), "inconclusive", lambda f: f.unsure),
    claim_row(
        "alignment",
        "anti-aligned",
        lambda f: any(score.z <= -score.critical for score in f.scores),
        "walked_back",
        lambda f: f"{f.scores_text}: the credit points against the gradient",
        "anti-aligned",
    ),
    claim_row(
        "alignment",
        "null missing",
        lambda f: bool(f.null_problem) or not f.scores,
        "inconclusive",
        lambda f: f.null_problem or "no null was measured",
    ),
    claim_row("alignment", "absent", _absent(fresh=False), "walked_back", _absent_text, "null"),
    claim_row("alignment", "not shown", lambda f: bool(_below(f, fresh=False)), "inconclusive", _not_shown_text),
    # Before fresh feedback: a skip path carries freshly drawn credit as well, so that null cannot name it.
    claim_row(
        "alignment",
        "skip path",
        lambda f: bool(f.skip_path),
        "walked_back",
        lambda f: f"{f.scores_text}, but {f.skip_path}",
        "carried by the skip path",
    ),
    claim_row("alignment", "absent, fresh", _absent(fresh=True), "walked_back", _absent_text, "null"),
    claim_row("alignment", "not shown, fresh", lambda f: bool(_below(f, fresh=True)), "inconclusive", _not_shown_text),
    claim_row(
        "alignment",
        "blocks",
        lambda f: bool(f.failing_blocks),
        "walked_back",
        lambda f: _failing_text(f, f"the credit that trains {_listed_blocks(f.failing_blocks)}"),
        lambda f: f"not in {_listed_blocks(f.failing_blocks)}",
    ),
    claim_row(
        "alignment",
        "update",
        lambda f: bool(f.failing_updates),
        "walked_back",
        lambda f: _failing_text(f, f"the update of {_listed_blocks(f.failing_updates)}"),
        lambda f: f"update of {_listed_blocks(f.failing_updates)}",
    ),
    claim_row(
        "alignment",
        "blocks not shown",
        lambda f: bool(f.unsure_blocks),
        "inconclusive",
        lambda f: _unsure_text(f, f"the credit that trains {_listed_blocks(f.unsure_blocks)}"),
    ),
    claim_row(
        "alignment",
        "update not shown",
        lambda f: bool(f.unsure_updates),
        "inconclusive",
        lambda f: _unsure_text(f, f"the update of {_listed_blocks(f.unsure_updates)}"),
    ),
    claim_row(
        "alignment",
        "small",
        lambda f: f.cosine < f.small,
        "detectable_small",
        lambda f: f"{f.scores_text}; under {f.small:g}{f.update_note}",
    ),
    claim_row("alignment", "stands", always, "stands", lambda f: f"{f.scores_text}, and in every block{f.update_note}"),
)
"""The rows of the alignment claim; the first that matches decides."""


def judge_alignment(facts: AlignmentFacts) -> Claim:
    """The alignment claim of one measured seed."""
    return matching_row(ALIGNMENT_TABLE, facts).result(facts)


_WORST_FIRST: tuple[ClaimOutcome, ...] = (
    "invalid", "walked_back", "inconclusive", "not_made", "not_applicable", "detectable_small", "stands", "trivial",
)  # fmt: skip


def alignment_of_seeds(claims: Sequence[Claim]) -> Claim:
    """The claim over several seeds: the worst of them; it stands only if it stands in every seed."""
    if len(claims) == 1:
        return claims[0]
    worst = min(claims, key=lambda claim: _WORST_FIRST.index(claim.outcome))
    agreeing = sum(claim.outcome == worst.outcome for claim in claims)
    return replace(worst, reason=f"in {agreeing} of {len(claims)} seeds: {worst.reason}")
