"""The credit claim: where a method fails, is it the credit that fails, or what is done with it?

The oracle control trains the same network with the exact gradient as credit and everything else unchanged:
`exact` (O1) at each block's output, `input` (O2) at its input, `direction` (O3) the exact direction with the method's
own size. `credit_facts` collects the comparisons, `CREDIT_TABLE` decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from walkback.judge.claim import CHECKPOINT, Claim, claim_row
from walkback.judge.decision_table import TableRow, always, matching_row
from walkback.judge.depth_claim import DepthFacts, judge_depth, margin_words
from walkback.judge.evidence import DIRECTION_ORACLE, EXACT_ORACLE, INPUT_ORACLE, Evidence
from walkback.judge.statistics import Margin, loss_margin, paired_margin, paired_score_margin
from walkback.judge.thresholds import DiagnosticThresholds

_BESIDE = {
    INPUT_ORACLE: "exact credit at the input (O2) is walked back: the site alone fails",
    DIRECTION_ORACLE: "the exact direction with the method's own size (O3) is walked back: the magnitude alone fails",
}
"""What is said where exact credit (O1) stands and this oracle is walked back."""


@dataclass(frozen=True)
class CreditFacts:
    """A method beside its oracles."""

    frozen: bool = False
    is_exact: bool = False
    """Whether the method's own credit is exact by construction."""
    method: str = "inconclusive"
    """The outcome of the method's depth claim."""
    oracles: Mapping[str, str] = field(default_factory=dict)
    """The outcomes of the oracles' depth claims, by name; each over its own frozen baseline."""
    gain: Margin | None = None
    """Accuracy with exact credit (O1) minus the method's, paired by seed."""
    line: float = 2.0
    confidence: float = 0.95

    @property
    def exact(self) -> str:
        return self.oracles.get(EXACT_ORACLE, "")

    @property
    def gain_interval(self) -> tuple[float, float]:
        """The interval of the gain; unbounded where it is not known."""
        known = None if self.gain is None else self.gain.interval
        return known or (float("-inf"), float("inf"))

    @property
    def gain_text(self) -> str:
        if self.gain is None:
            return "exact credit (O1) was not trained on the same seeds"
        return f"exact credit (O1) minus the method: {margin_words(self.gain, self.confidence)}"

    @property
    def cost_text(self) -> str:
        return "" if self.gain is None else f"{self.gain.mean:.{self.gain.digits}f} {self.gain.unit}"

    @property
    def beside(self) -> str:
        """What the other oracles add where exact credit stands."""
        if self.exact != "stands":
            return ""
        return "".join(f"; {text}" for name, text in _BESIDE.items() if self.oracles.get(name) == "walked_back")


CREDIT_TABLE: tuple[TableRow[CreditFacts, Claim], ...] = (
    claim_row("credit", "frozen", lambda f: f.frozen, "not_applicable", "the blocks are frozen: no credit trains them"),
    claim_row(
        "credit", "exact", lambda f: f.is_exact, "not_applicable", "the method's own credit is exact by construction"
    ),
    claim_row("credit", "no oracle", lambda f: not f.exact, "not_made", "no oracle control was trained"),
    claim_row(
        "credit",
        "not the credit",
        lambda f: f.exact == f.method == "walked_back",
        "not_the_credit",
        lambda f: f"exact credit (O1) is walked back too; {f.gain_text}",
    ),
    claim_row(
        "credit",
        "attributable",
        lambda f: f.exact == "stands" and f.method == "walked_back" and f.gain_interval[0] > 0,
        "attributable_to_credit",
        lambda f: f"{f.gain_text}, and with it the depth claim stands{f.beside}",
    ),
    claim_row(
        "credit",
        "costs",
        lambda f: f.exact == f.method == "stands" and f.gain_interval[0] >= f.line,
        "costs",
        lambda f: f"both stand; {f.gain_text}{f.beside}",
        lambda f: f.cost_text,
    ),
    claim_row(
        "credit",
        "as good as exact",
        lambda f: f.gain_interval[0] > -f.line and f.gain_interval[1] < f.line,
        "as_good_as_exact",
        lambda f: f.gain_text,
    ),
    claim_row("credit", "undecided", always, "inconclusive", lambda f: f"{f.gain_text}{f.beside}"),
)
"""The rows of the credit claim; the first that matches decides."""


def judge_credit(facts: CreditFacts) -> Claim:
    """The credit claim of a method over its seeds."""
    claim = matching_row(CREDIT_TABLE, facts).result(facts)
    decided = claim.outcome not in ("not_applicable", "not_made", "inconclusive")
    single = facts.gain is not None and facts.gain.is_of_one_seed
    return replace(claim, scope=CHECKPOINT) if decided and single else claim


def credit_facts(
    evidence: Evidence, depth: DepthFacts, method: Claim, t: DiagnosticThresholds, *, is_exact: bool = False
) -> CreditFacts:
    """The facts of one method, whose depth claim is `method`."""
    outcomes = {}
    for name, oracle in evidence.oracles.items():
        if evidence.losses is None:
            margin = _difference(oracle.acc, oracle.frozen_acc, oracle.correct, oracle.frozen_correct, t)
        else:
            margin = _loss_difference(oracle.loss, oracle.frozen_loss, t)
        outcomes[name] = judge_depth(
            DepthFacts(
                baseline=margin is not None, margin=margin, gate=depth.gate, line=depth.line, confidence=t.confidence
            )
        ).outcome
    exact = evidence.oracles.get(EXACT_ORACLE)
    gain = None
    if exact is not None and len(exact.acc) == len(evidence.headline_acc):
        if evidence.losses is None:
            gain = _difference(exact.acc, evidence.headline_acc, exact.correct, evidence.correct, t)
        else:
            gain = _loss_difference(exact.loss, evidence.losses.headline, t)
    return CreditFacts(
        frozen=depth.frozen,
        is_exact=is_exact,
        method=method.outcome,
        oracles=outcomes,
        gain=gain,
        line=depth.line,
        confidence=t.confidence,
    )


def _loss_difference(ours: Sequence[float], theirs: Sequence[float], t: DiagnosticThresholds) -> Margin | None:
    """Theirs minus ours in nats, paired by seed."""
    return loss_margin(ours, theirs, t.confidence) if ours and theirs else None


def _difference(
    ours: Sequence[float],
    theirs: Sequence[float],
    our_correct: Sequence[bool],
    their_correct: Sequence[bool],
    t: DiagnosticThresholds,
) -> Margin | None:
    """Ours minus theirs: paired by seed, or for one seed by sample where correctness was stored."""
    if not ours or not theirs:
        return None
    if len(ours) == 1 and our_correct and their_correct:
        return paired_score_margin(our_correct, their_correct, t.confidence)
    return paired_margin(ours, theirs, t.confidence)
