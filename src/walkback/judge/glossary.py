"""Short explanations of the terms that cards, tables and pages use: the one place where they are written.

A check that is added later needs no entry: its explanation is the first line of its docstring.
"""

from __future__ import annotations

from difflib import get_close_matches

from walkback.core.catalog import Entry
from walkback.core.errors import InputError
from walkback.judge.checks import CHECKS
from walkback.judge.thresholds import DiagnosticThresholds

_T = DiagnosticThresholds()

GLOSSARY: dict[str, str] = {
    # Checks.
    "growth (D1)": (
        "Scale stability: the largest ratio |h_{l+1}| / |h_l| of mean hidden norms from one layer to the next. "
        f"It fails above {_T.h_norm_explosion_ratio:g}."
    ),
    "reference validity (D2)": (
        "|g_L| @128, the mean norm of the gradient at the deepest hidden state. It fails under "
        f"{_T.g_norm_floor:g}, ten times the norm at which plain cosine functions clamp."
    ),
    "depth utility (D3)": (
        "Test accuracy minus that of the frozen baseline, in percentage points (pp). It fails under "
        f"{_T.frozen_acc_margin_pp:g} pp: then the trained blocks are hardly better than random ones. For language "
        "models it is the frozen baseline's test loss minus the method's, and fails under "
        f"{_T.frozen_loss_margin_nats:g} nats a token."
    ),
    "drift (c)": (
        "The mean pairwise cosine of group-mean gradients at the deepest state. It fails above "
        f"{_T.stability_drift_ceiling:g}, where all samples push the state in one direction, and decides no verdict."
    ),
    "concentration": (
        "The largest share κ of the alignment that a single layer holds, over layers above their null that are not "
        f"exact. It fails above {_T.concentration:g} and decides no verdict."
    ),
    # Alignment.
    "aggregate cosine Γ": (
        "One number for the alignment of all layers: a mean of the cosines between credit and gradient. A1 to A4 and "
        "deep_mean are such aggregates; they can differ several-fold, so each is named."
    ),
    "deep_mean": (
        "The mean cosine of credit and gradient over the states whose credit trains a block, without exact layers: "
        "h_0..h_L-1 under site=input, h_1..h_L under site=output; without h_0 where the cls token is measured. "
        "The alignment claim is judged by it."
    ),
    "deep_mean_papers": (
        "The mean cosine over l = 1..L with exact layers counted: the aggregate to compare with published figures."
    ),
    "deep_mean_z": "deep_mean in standard deviations of the same under random rotations of the credit.",
    "deep_mean_fresh_z": "deep_mean in standard deviations of the same under freshly drawn feedback.",
    "used_mean": (
        "The mean over blocks of the cosine of the credit that trains a block with the gradient at its output; shown, "
        "not judged."
    ),
    "A1": "The mean over all layers of the cosine of credit and gradient.",
    "A2": "One cosine per sample over all layers joined into one vector, averaged over samples.",
    "A3": "The cosine of group means of credit and gradient, averaged over groups and layers.",
    "A4": "The mean cosine over layers, weighted by the norm of the gradient.",
    "cosine": (
        "The mean over samples of the cosine between a layer's credit and the reference gradient, in float64 and "
        "without an epsilon."
    ),
    "null": (
        "What the cosine would be by chance: the distribution under a random rotation of the credit, or under freshly "
        "drawn feedback."
    ),
    "z over the null": (
        "A cosine's distance above its null, in standard deviations of the null. An alignment needs a z of at least "
        f"{_T.null_z:g}."
    ),
    "fresh feedback": (
        "A null: the rule's random feedback is drawn anew 20 times and the same weights are measured with each draw."
    ),
    "label": (
        "How a layer's credit relates to the gradient by construction: exact, asymptotic, fitted, signs or none."
    ),
    "used cos": (
        "The cosine of the credit that trains a block with the gradient at the block's output, where its update acts; "
        "a mean over samples."
    ),
    "ratio": "The median over samples of the norm of the credit that trains a block over the norm of that gradient.",
    "update cos": (
        "The cosine of the parameter gradient that a method hands to its optimiser with that of the mean loss, for one "
        "block; a mean over groups of 128 samples."
    ),
    "z(update)": "update cos in standard deviations of the same under rotated or freshly drawn credits.",
    "carried by the skip path": (
        "Nothing of the alignment is left when the gradient at h_L, which the skips carry to every layer, is removed "
        "from credit and gradient."
    ),
    "skipped": "The accuracy with one block skipped. A network that exploded is far from its training there.",
    "reset": "The accuracy with one block's parameters set back to their initial values.",
    "cut": "The accuracy of the network cut off after a block: its head reads that state.",
    "probe": (
        "The accuracy of a ridge classifier that reads the labels from a hidden state, fitted on training samples."
    ),
    "untrained": "The accuracy of the same probe on the network before training.",
    "exact layer": (
        "A layer whose credit is the gradient by construction, such as the top layer of feedback alignment. Its cosine "
        "of 1 is no evidence of learning."
    ),
    # Reference and credit.
    "hidden state": "The activations h_0..h_L before the first block, between the blocks and after the last one.",
    "reference gradient": (
        "g_l, the derivative of each sample's own loss with respect to the hidden state h_l, from the forward pass "
        "alone and checked by finite differences."
    ),
    "credit": "a_l, the training signal that a method sends to the hidden state h_l in place of the gradient.",
    "site": (
        "The hidden state whose credit trains a block: that of the block's output (as in backprop) or of its input."
    ),
    "oracle control": (
        "The same training with exact credit in place of the method's own, compared with a frozen baseline of its own. "
        "If it fails too, the failure is not the credit's."
    ),
    "exact oracle": (
        "O1: block l is trained by the gradient g_{l+1} of its output state; penalty, error scale and untrained "
        "parameters are the method's. Backprop's run where only the credit differs."
    ),
    "input oracle": "O2: block l is trained by the gradient g_l of its input state: `bp:site=input`.",
    "direction oracle": (
        "O3: block l is trained by the direction of g_{l+1} with the norm of the credit by which the method would "
        "train it, sample by sample: exact direction, the method's own magnitude."
    ),
    "@128": (
        "A gradient norm quoted for the mean loss of a batch of 128 samples: the per-sample norm divided by 128."
    ),
    "|g_L|": "The norm of the reference gradient at the deepest hidden state, a mean over samples.",
    "|h|": "The L2 norm of a hidden state, a mean over samples, without normalising first.",
    "direction validity": (
        "Whether float64 reproduces the direction of a layer's gradient: valid, degraded, noise or missing; invalid if "
        "it is not the derivative of the loss."
    ),
    "cos(g, g64)": "The cosine between a gradient in the model's own precision and its replay in float64.",
    "clamp": (
        f"Whether norms are so small that a plain cosine function, which divides by at least {_T.cosine_eps:g}, would "
        "distort the cosine."
    ),
    "pool": "Which part of a token state stands for a sample: the cls token, the mean over tokens, or all of it.",
    # Accuracies.
    "frozen baseline": (
        "The same network with its blocks frozen at random; the rest is trained by the method's own credit."
    ),
    "bp frozen baseline": "The same network with its blocks frozen at random; the rest is trained by backprop.",
    "margin": (
        "Accuracy minus that of a frozen baseline, in percentage points (pp), paired by seed, with an interval over "
        "seeds where there are two or more. Of losses: the baseline's minus the method's, in nats."
    ),
    "interval": (
        f"A {_T.confidence:.0%} confidence interval: Student's t over paired seeds, or Tango's score interval over "
        "samples where there is one seed."
    ),
    "flips at": "The threshold at which the check's result would change, with the same measurements.",
    "n": "How many samples, groups, layers or seeds a number was computed from.",
    # Verdicts.
    "edition three": "The later paper's rule: a method is walked back if growth (D1) and D2 both fail, or if D3 fails.",
    "edition four": (
        "The first paper's rule: a method is walked back if D1, D2 or D3 fails. Without a frozen baseline D3 is "
        "skipped."
    ),
    "edition claims": (
        "The default rule: walked back if depth or a claimed alignment is walked back; trustworthy if depth stands "
        "and no claimed alignment fails; otherwise inconclusive."
    ),
    "verdict": "What an edition concludes: trustworthy, walked back, inconclusive or cannot be judged.",
    "trustworthy": "The claims stand, or no check that the edition uses fails. Nothing beyond that is certified.",
    "cannot be judged": (
        "The model's outputs are not finite, or it gives one prediction for all samples, or all labels are equal."
    ),
    "this checkpoint": "The claim is based on one seed: it is about these weights, not about the method.",
    "walked back": "Checks or claims fail, so that what the accuracy and alignment suggest cannot be claimed.",
    "inconclusive": "Something that could change the outcome was not measured, or is not informative.",
    "stands": "The claim holds: its number is beyond its threshold or null by more than chance allows.",
    "trivial": "The credit is the gradient by construction at every layer, so its alignment says nothing.",
    "alignment claim": (
        f"Does the credit point along the gradient? It stands if deep_mean and the credit of every block are "
        f"{_T.null_z:g} standard deviations above their nulls, the reference is valid and the skip path does not "
        "carry it."
    ),
    "credit claim": (
        "Where a method fails, is it the credit? Compared with the same training by exact credit (oracle control), "
        "paired by seed."
    ),
    "not the credit": "Exact credit fails in the same training, so the failure is not due to the credit.",
    "attributable to the credit": "The method fails, and the same training with exact credit does not.",
    "as good as exact credit": (
        f"The interval of the difference to exact credit lies within {_T.frozen_acc_margin_pp:g} pp of zero."
    ),
    "costs": "The method and exact credit both stand, and exact credit is better by this many percentage points.",
    "detectable, small": f"The alignment is above its null, and its cosine is under {_T.small_alignment:g}.",
    "not checked": "No frozen baseline was given, so that depth could not be judged.",
    "not made": "What the claim would be about was not measured or trained.",
    "not applicable": "The claim has no meaning here: the blocks are frozen, or the credit is exact by construction.",
    "anti-aligned": "The credit points against the gradient by more than chance allows.",
    "depth claim": (
        "Does training the blocks help? It stands if the whole interval of the margin over the frozen baseline is at "
        f"or above {_T.frozen_acc_margin_pp:g} pp."
    ),
    "passes": "The value is on the good side of the check's threshold.",
    "fails": "The value is beyond the check's threshold. In stored cards: FAIL, raised.",
    "invalid": "A number whose precondition failed, such as a cosine with a reference that is noise: it has no value.",
    "not informative": "A check that was measured but cannot say anything here, such as depth where it is not needed.",
    "failure mode": "How a method fails: 1a growth, 1b collapse of the reference, 2 low or concentrated credit.",
    # Runs.
    "run": "One training of a method on a network and data set with one seed, stored in a folder with a run.json.",
    "id": "The hash at the end of a run's name; on the command line it names the run.",
    "fleet": "Runs that differ only in seed, frozen baseline and per-model numbers, trained in one batched step.",
    "card": "report.json: the verdict on a run or a model, every number behind it, and a hash that reveals changes.",
    "seed": "The number that determines a run's initial weights, feedback and order of samples.",
    "accuracy": "The share of test samples that the trained network classifies rightly; of language models, of tokens.",
    "method": "The rule that trains the network, with its settings; `walkback ls methods` lists the rules.",
    "cost": "The time of a method's training step in steps of backprop on the same network and device.",
    "result": "Whether the check passes or fails, or why it says neither.",
    "fails if": "The values of the measured number at which the check fails.",
    # Studies.
    "case": "One method on one network and data set, over its seeds.",
    "layer": "One of the hidden states h_0..h_L, numbered by l; L is the deepest.",
    "block": "One of the network's residual blocks, numbered from 0: it turns h_l into h_{l+1}.",
    "pp": "Percentage points.",
    "deep": "Over the layers that deep_mean is over: those whose credit trains a block, without exact ones.",
    "λ": "The factor of a penalty on the squared norm of each block's output, added to its training signal.",
    "‖e‖": "The norm of the output error, the gradient of a sample's loss in the logits; a mean over samples.",
    "‖a‖": "The norm of the credit; a mean over samples.",
    "w1": "The first weight matrix of a residual block, of size d x d; w2 is the second.",
    "B": "The random feedback matrices of a method. Own: those it was trained with; fresh: drawn anew after training.",
    "flips": "How often, or where, a verdict changes when one thing is changed and the measurements stay the same.",
    "strategy S0": "Judging by accuracy alone.",
    "strategy S1": "Judging by accuracy and alignment, as most papers do.",
    "strategy S2": "S1, and walked back where growth (D1) and D2 both fail (Mode 1).",
    "strategy S3": "S2, and walked back where depth utility (D3) fails: the rule of edition three.",
    "strategy +(a)": "Judging by accuracy and growth (D1).",
    "strategy +(b)": "Judging by accuracy and reference validity (D2).",
    "strategy +(c)": "Judging by accuracy and drift (c).",
    "strategy +(d)": "Judging by accuracy and depth utility (D3).",
    "strategy full": "Walked back where D1, D2 or D3 fails: the rule of edition four.",
    "healthy": "A method that the papers call healthy, such as backprop.",
    "degenerate": "A method that the papers call degenerate: its deepest gradient has collapsed.",
    "gap": "The distance between the values of healthy and degenerate methods; separated: one threshold divides them.",
    "perturbation ρ": (
        "Perturbation correlation: over small random changes of a hidden state, the correlation of the true change of "
        "the loss with the change that the credit predicts."
    ),
    "nudging": "The change of the mean loss when hidden states are moved a small step against the credit.",
    "efficiency": "The change of the loss by a step against the credit over that by a step against the true gradient.",
    "τ": "Kendall's rank correlation: 1 if two numbers rank the methods alike, -1 if they rank them in reverse.",
    "slope": "How log |g_L| changes with log |h_L| while training: -1 if the reference falls as the stream grows.",
    "terminal norm": "The LayerNorm before the output layer. It makes the gradient fall as the hidden state grows.",
    "coverage": "How often an interval contains the true value in simulations; promised: its nominal level.",
    "as required": "Whether the simulated coverage lies in the range that was fixed beforehand.",
    "undecided": "Every outcome but stands (trivial, trustworthy) and walked back (invalid).",
    "alarm": "A detector's failure during training; it lasts if the detector also fails at the end.",
    "stopped": (
        "Training ended at a detector's first alarm. Still to come: the accuracy that the rest of the training would "
        "have added; saved: its share of the epochs."
    ),
    "variant": "The papers' recipe with one unstated part changed.",
    "check": "A number that is measured and compared with a threshold: growth (D1), D2, D3, drift (c), concentration.",
    "driver": "How runs are trained: one by one (single) or together in one batched step (fleet).",
    "BP": "Backpropagation: the credit is the gradient.",
    "FA": "Feedback alignment: the credit is sent back through fixed random matrices, from block to block.",
    "DFA": "Direct feedback alignment: the output error is sent to every block by a fixed random matrix.",
    "State Bridge": "A method whose credit is the loss gradient through a learned map from each state to the last one.",
    "unit error": "A setting of DFA, scale=unit_error: each sample's output error is sent with norm 1.",
    "Credit Bridge": "A method whose credit is the gradient of a learned estimate of the final loss from each state.",
    "scale stable": "Growth (D1) passes.",
    "chosen": "The learning rate with the best mean accuracy on held-out training samples.",
}  # fmt: skip

LEGEND: dict[str, str] = {
    "blocks add": "accuracy over the same network with blocks frozen at random",
    "growth": "largest ratio of hidden norms over a layer (fails above {limit:g})",
    "depth": "training the blocks helps",
    "alignment": "each block's credit (training signal) points along the gradient",
    "walked back": "may not be claimed",
}
"""The terms of the summary in a terminal, each in a few words; `{limit}` is the threshold of growth (D1)."""
PICTURE_KEY: dict[str, str] = {
    "Growth": "the largest ratio of hidden norms from one layer to the next; fails above {growth}",
    "Reference": (
        "the norm of the gradient at the deepest hidden state, with which the credit is compared; fails under {floor}"
    ),
    "Depth": "{what} better than with frozen blocks",
    "Trustworthy": "no claim fails",
    "Needs walk-back": "a claim must be withdrawn",
}
"""The same below the picture of a page, with its thresholds; `{what}` is accuracy or loss."""
SETTINGS_LEGEND: dict[str, str] = {"unit error": "the error scaled to norm 1"}
"""The same for settings in short names of methods; shown where one has them."""

_ALIASES: dict[str, str] = {
    "d1": "growth (D1)",
    "(a)": "growth (D1)",
    "growth": "growth (D1)",
    "scale stability": "growth (D1)",
    "d2": "reference validity (D2)",
    "(b)": "reference validity (D2)",
    "reference validity": "reference validity (D2)",
    "d3": "depth utility (D3)",
    "(d)": "depth utility (D3)",
    "depth utility": "depth utility (D3)",
    "(c)": "drift (c)",
    "drift": "drift (c)",
    "gradient direction": "drift (c)",
    "direction": "drift (c)",
    "kappa": "concentration",
    "κ": "concentration",
    "γ": "aggregate cosine Γ",
    "gamma": "aggregate cosine Γ",
    "aggregate cosine": "aggregate cosine Γ",
    "z": "z over the null",
    "used_cos": "used cos",
    "update_cos": "update cos",
    "credit_ratio": "ratio",
    "credit ratio": "ratio",
    "oracle": "oracle control",
    "o1": "exact oracle",
    "o2": "input oracle",
    "o3": "direction oracle",
    "lesion": "skipped",
    "skip path": "carried by the skip path",
    "exact": "exact layer",
    "reference": "reference gradient",
    "gradient": "reference gradient",
    "h": "hidden state",
    "|g_l| @128": "|g_L|",
    "‖g_l‖ @128": "|g_L|",
    "|g| @128": "@128",
    "cos(g32, g64)": "cos(g, g64)",
    "shell": "frozen baseline",
    "method_shell": "frozen baseline",
    "bp shell": "bp frozen baseline",
    "bp_shell": "bp frozen baseline",
    "over frozen, pp": "margin",
    "blocks add": "depth utility (D3)",
    "over bp frozen, pp": "margin",
    "three": "edition three",
    "four": "edition four",
    "claims": "edition claims",
    "alignment": "alignment claim",
    "depth": "depth claim",
    "cannot_be_judged": "cannot be judged",
    "not_the_credit": "not the credit",
    "attributable_to_credit": "attributable to the credit",
    "as_good_as_exact": "as good as exact credit",
    "detectable_small": "detectable, small",
    "not_checked": "not checked",
    "not_made": "not made",
    "not_applicable": "not applicable",
    "needs walk-back": "walked back",
    "walked_back": "walked back",
    "raised": "fails",
    "fail": "fails",
    "clear": "passes",
    "pass": "passes",
    "not_informative": "not informative",
    "mode": "failure mode",
    "modes": "failure mode",
    "mode 1": "failure mode",
    "acc.": "accuracy",
    "acc": "accuracy",
    "checks": "check",
    "fresh": "fresh feedback",
    "used cosine": "used cos",
    "update cosine": "update cos",
    "a1–a4": "A1",
    "|w1|": "w1",
    "|w2|": "w1",
    "|g_2|": "reference gradient",
    "layers": "layer",
    "l": "layer",
    "blocks": "block",
    "runs": "run",
    "claim": "edition claims",
    "limit": "fails if",
    "flag": "result",
    "verdicts": "verdict",
    "aligned": "alignment claim",
    "penalty": "λ",
    "w2": "w1",
    "‖f‖": "λ",
    "h_l": "|h|",
    "‖h_l‖": "|h|",
    "‖g‖": "@128",
    "‖g_l[i]‖": "reference gradient",
    "feedback": "B",
    "rotation": "null",
    "degraded": "direction validity",
    "valid": "direction validity",
    "noise": "direction validity",
    "separated": "gap",
    "flips at batch": "flips at",
    "promised": "coverage",
    "required": "as required",
    "floor": "reference validity (D2)",
    "clamped": "clamp",
    "clamp-distorted": "clamp",
    "deep mean": "deep_mean",
    "deep mean, papers": "deep_mean_papers",
    "saved": "stopped",
    "still to come": "stopped",
    "s0": "strategy S0",
    "s1": "strategy S1",
    "s2": "strategy S2",
    "s3": "strategy S3",
    "+(a)": "strategy +(a)",
    "+(b)": "strategy +(b)",
    "+(c)": "strategy +(c)",
    "+(d)": "strategy +(d)",
    "full": "strategy full",
    "ρ": "perturbation ρ",
    "cos": "cosine",
    "true gradient": "reference gradient",
    "over frozen": "margin",
    "over own": "margin",
    "trained": "run",
    "seeds": "seed",
}
"""Other spellings, in lower case."""


def normal(term: str) -> str:
    """A term without markup, in lower case: `‖g\\_L‖ @128 ↑` and `|g_L| @128` are the same."""
    return " ".join(term.translate(_MARKUP).lower().split())


_MARKUP = str.maketrans({"‖": "|", **dict.fromkeys("\\`*$~↑↓{}", "")})
_NAMES = {normal(name): name for name in GLOSSARY} | {normal(alias): name for alias, name in _ALIASES.items()}


def all_names() -> dict[str, str]:
    """Every name and alias in its normal form, with its term."""
    return dict(_NAMES)


def term_named(text: str) -> str | None:
    """The term of this name or alias, whatever its case and markup; None if there is none."""
    return _NAMES.get(normal(text))


def in_short(term: str) -> str:
    """The first sentence of a term's explanation, without its full stop."""
    return explain(term).partition(". ")[0].removesuffix(".")


def explain(term: str) -> str:
    """The explanation of a term, a check's id or one of their aliases; case and markup do not count."""
    name = term_named(term)
    if name is not None:
        return GLOSSARY[name]
    checks: dict[str, Entry] = {entry.name.lower(): entry for entry in CHECKS.entries()}
    if normal(term) in checks:
        return checks[normal(term)].summary
    close = get_close_matches(normal(term), [*_NAMES, *checks], n=1, cutoff=0.5)
    hint = f" Did you mean '{_NAMES.get(close[0], close[0])}'?" if close else ""
    raise InputError(f"Unknown term '{term}'.{hint} `walkback explain` lists all terms.")
