"""The closed set of ways in which a figure of ours is read from stored results, by name. Nothing is measured here.

Each gives one value for each seed: a number that knows whether it may be used, or a word where the papers print a word.
Gradients are @128.
"""

from __future__ import annotations

from walkback.judge.inflation import block_move, matrix_move, matrix_product
from walkback.judge.number import Number
from walkback_papers.published.comparisons import (
    caught_quantity,
    difference,
    gap,
    how_many,
    lead,
    leader,
    mode_1_quantity,
    passes,
    ranked,
    setting,
    verdict_by,
    verdict_quantity,
)
from walkback_papers.published.run_quantities import (
    Quantity,
    alarm_quantity,
    block_outputs,
    cosine_quantity,
    deep_early,
    fall,
    flag_value,
    fresh_quantity,
    fresh_score,
    is_silent,
    logged,
    loss_change,
    of_all,
    of_network,
    of_weights,
    per_case,
    saved_quantity,
    steps,
    ways,
    ways_flip,
    ways_ratio,
)

QUANTITIES: dict[str, Quantity] = {
    # Accuracies
    "accuracy": per_case(lambda case, ask: Number.of(case.accuracy)),
    "accuracy_at": logged(lambda row, ask: row.get("test_acc")),
    "difference": difference,
    # Norms, at a layer: at the end, after an epoch that was measured in full (0: before the first), or as the detectors
    # logged them
    "growth": per_case(lambda case, ask: flag_value(case, "D1")),
    "hidden": of_network(lambda q, ask: q.layers[ask.layer].hidden_norm),
    "gradient": of_network(lambda q, ask: q.layers[ask.layer].grad_norm_128),
    "hidden_at": logged(lambda row, ask: row["hidden"][ask.layer]),
    "gradient_at": logged(lambda row, ask: row["grad"][ask.layer]),
    # From the first weights to the last
    "block_move": of_weights(block_move),
    "matrix_move": of_weights(matrix_move),
    "matrix_product": of_weights(matrix_product),
    "block_outputs": per_case(block_outputs),
    # Directions
    "direction": of_network(lambda q, ask: q.group_cos),
    "cosine": of_network(lambda q, ask: cosine_quantity(q)[ask.layer]),
    "gamma": of_network(lambda q, ask: q.aggregates.a1),
    "deep": of_network(lambda q, ask: q.aggregates.deep_mean_papers),
    "deep_early": per_case(deep_early),
    "deep_not_exact": of_network(lambda q, ask: q.aggregates.deep_mean),
    "deep_least": of_network(lambda q, ask: of_all(cosine_quantity(q)[1:], min)),
    "deep_most": of_network(lambda q, ask: of_all(cosine_quantity(q)[1:], max)),
    "deep_order": ranked(lambda case: case.report.quantities.aggregates.deep_mean_papers),
    "ways_least": of_network(lambda q, ask: of_all(ways(q), min)),
    "ways_most": of_network(lambda q, ask: of_all(ways(q), max)),
    "ways_ratio": of_network(ways_ratio),
    "ways_flip": of_network(ways_flip),
    "fresh": per_case(lambda case, ask: Number.of(float(fresh_quantity(case, 1).mean()))),
    "fresh_width": per_case(lambda case, ask: Number.of(float(fresh_quantity(case, 1).std(ddof=1)))),
    "fresh_score": per_case(fresh_score),
    "fresh_gamma": per_case(lambda case, ask: Number.of(float(fresh_quantity(case, 0).mean()))),
    # Finite steps: the papers' ρ takes one-sided differences; of the controls only central ones are stored
    "rho": per_case(lambda case, ask: steps("rho_one_sided")(case)),
    "rho_gradient": per_case(lambda case, ask: steps("rho_gradient")(case)),
    "rho_random": per_case(lambda case, ask: steps("rho_random")(case)),
    "nudging": per_case(lambda case, ask: steps("nudge_credit")(case)),
    "nudging_lead": lead(fall(steps("nudge_credit"))),
    "nudging_leader": leader(fall(steps("nudge_credit"))),
    "loss": per_case(lambda case, ask: loss_change(case)),
    "loss_lead": lead(fall(loss_change)),
    "loss_leader": leader(fall(loss_change)),
    # Detectors over the epochs
    "first_epoch": per_case(alarm_quantity),
    "saved": per_case(saved_quantity),
    "silent": is_silent,
    # Gaps between groups of methods
    "growth_healthy": gap("D1", "healthy"),
    "growth_degenerate": gap("D1", "degenerate"),
    "growth_gap": gap("D1", "gap"),
    "floor_healthy": gap("D2", "healthy"),
    "floor_degenerate": gap("D2", "degenerate"),
    "floor_gap": gap("D2", "gap"),
    # Words
    "verdict": per_case(verdict_quantity),
    "verdict_by": per_case(verdict_by),
    "passes": per_case(passes),
    "mode_1": per_case(mode_1_quantity),
    "caught": per_case(caught_quantity),
    "caught_of": how_many,
    "setting": setting,
}
