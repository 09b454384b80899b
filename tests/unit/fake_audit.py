"""A synthetic audit: cards of methods over seeds in known states, and matching training logs."""

from __future__ import annotations

from typing import Any

from fake_measurements import ALL, healthy, noise

from walkback.judge.evidence import Evidence
from walkback.judge.report import DiagnosticReport, judge

EPOCHS = 6
CONFIG = {
    "data": {"name": "prototypes", "train": 640},
    "epochs": EPOCHS,
    "batch": 64,
    "lr": 0.01,
    "weight_decay": 0.01,
    "augment": "none",
}
GOOD = Evidence.of([0.61, 0.62], {"method_shell": [0.35, 0.36], "bp_shell": [0.42, 0.41]}, [0.6, 0.6])
BAD = Evidence.of([0.31, 0.30], {"method_shell": [0.35, 0.36], "bp_shell": [0.42, 0.41]}, [0.6, 0.6])
SEEDS = (1, 2)
MADE = {
    "bp": (lambda seed: ALL["backprop"](seed=seed), GOOD),
    "fa": (lambda seed: healthy(cosines=[0.3, 0.25, 0.2, 0.3, 1.0], seed=seed, grad=4e-4 * seed), GOOD),
    "dfa:scale=unit_error,site=input": (lambda seed: ALL["exploded"](seed=seed), BAD),
    # One seed's reference is noise at the last two layers, the other's is valid.
    "kp": (lambda seed: noise() if seed == 1 else healthy(), GOOD),
    "state_bridge": (lambda seed: ALL["concentrated"](seed=seed), GOOD),
    "mine": (lambda seed: ALL["no credit"](seed=seed), Evidence()),
    "sdfa": (lambda seed: ALL["no replay"](), GOOD),
}
"""By method: the measurements of a seed, and the accuracies it is judged by."""


def report(method: str, seed: int, **context: Any) -> DiagnosticReport:
    measured, evidence = MADE[method]
    given = {"arch": "resmlp:depth=4", "data": "prototypes", "seed": seed}
    given["provenance"] = {"run": f"{method}_{seed}", "config": CONFIG}
    return judge(measured(seed), evidence, method_name=method, context=given | context)


def reports(count: int = len(MADE)) -> list[DiagnosticReport]:
    """The first methods, seeds innermost."""
    return [report(method, seed) for method in list(MADE)[:count] for seed in SEEDS]


def log(method: str, seed: int) -> list[dict[str, Any]]:
    """Accuracies rise; one method grows and collapses, one becomes infinite, one was not watched, one log is lost."""
    if method == "mine":
        return []
    rows: list[dict[str, Any]] = []
    for epoch in range(1, EPOCHS + 1):
        rows.append({"epoch": epoch, "loss": 1.0 / epoch, "test_acc": 0.3 + 0.05 * epoch + 0.01 * seed})
        if method == "sdfa" or (method == "state_bridge" and seed == 2):
            continue
        grown = method.startswith("dfa")
        growth = 2.0 * 6.0**epoch if grown else 1.2 + 0.01 * seed
        # The first seed falls under the floor of 1e-7 at epoch 4, the second never.
        top = 1e-3 * (10.0 ** (-epoch - 0.5) if grown and seed == 1 else 0.5)
        rows[-1] |= {"growth": growth, "grad_top": top, "overflow": None}
        if method == "kp" and epoch == EPOCHS:
            rows[-1] |= {"growth": None, "grad_top": None, "overflow": 3}
    return rows


def logs(found: list[DiagnosticReport]) -> list[list[dict[str, Any]]]:
    return [log(each.method_name, each.context["seed"]) for each in found]
