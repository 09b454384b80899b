"""The quantities that published figures refer to by name, computed from stored results. Nothing is measured here.

Each gives one value per seed: a `Number` with its status, or a word where the papers print a word. Gradients are @128.
"""

from __future__ import annotations

from walkback.judge.number import Number
from walkback.judge.weight_growth import block_move, matrix_move, matrix_product
from walkback_papers.published.comparisons import (
    accuracy_difference,
    caught_quantity,
    check_passes,
    count_caught,
    healthy_gap,
    largest_method,
    method_ranking,
    mode_1_quantity,
    ratio_to_other,
    run_setting,
    verdict_by,
    verdict_quantity,
)
from walkback_papers.published.run_quantities import (
    Quantity,
    aggregates_differ_in_sign,
    aggregates_ratio,
    alarm_quantity,
    block_outputs,
    combined_number,
    decrease,
    deep_early,
    finite_step_mean,
    flag_value,
    four_aggregates,
    fresh_feedback_means,
    fresh_feedback_score,
    layer_cosines,
    log_quantity,
    loss_change,
    network_quantity,
    no_detector_fires,
    per_case,
    saved_quantity,
    weights_quantity,
)
from walkback_papers.tables import mean_without_exact

QUANTITIES: dict[str, Quantity] = {
    # Accuracies
    "accuracy": per_case(lambda case, query: Number.of(case.accuracy)),
    "accuracy_at": log_quantity(lambda row, query: row.get("test_acc")),
    "difference": accuracy_difference,
    # Norms at a layer: at the end, after an epoch with a full measurement (0: before the first step), or from the log
    "growth": per_case(lambda case, query: flag_value(case, "D1")),
    "hidden": network_quantity(lambda q, query: q.layers[query.layer].hidden_norm),
    "gradient": network_quantity(lambda q, query: q.layers[query.layer].grad_norm_128),
    "hidden_at": log_quantity(lambda row, query: row["hidden"][query.layer]),
    "gradient_at": log_quantity(lambda row, query: row["grad"][query.layer]),
    # From the first weights to the last
    "block_move": weights_quantity(block_move),
    "matrix_move": weights_quantity(matrix_move),
    "matrix_product": weights_quantity(matrix_product),
    "block_outputs": per_case(block_outputs),
    # Directions
    "direction": network_quantity(lambda q, query: q.group_cos),
    "cosine": network_quantity(lambda q, query: layer_cosines(q)[query.layer]),
    "gamma": network_quantity(lambda q, query: q.aggregates.a1),
    "deep": network_quantity(lambda q, query: q.aggregates.deep_mean_papers),
    "deep_early": per_case(deep_early),
    "deep_not_exact": network_quantity(lambda q, query: mean_without_exact(q)),
    "deep_least": network_quantity(lambda q, query: combined_number(layer_cosines(q)[1:], min)),
    "deep_most": network_quantity(lambda q, query: combined_number(layer_cosines(q)[1:], max)),
    "deep_order": method_ranking(lambda case: case.report.quantities.aggregates.deep_mean_papers),
    "ways_least": network_quantity(lambda q, query: combined_number(four_aggregates(q), min)),
    "ways_most": network_quantity(lambda q, query: combined_number(four_aggregates(q), max)),
    "ways_ratio": network_quantity(aggregates_ratio),
    "ways_flip": network_quantity(aggregates_differ_in_sign),
    "fresh": per_case(lambda case, query: Number.of(float(fresh_feedback_means(case, 1).mean()))),
    "fresh_width": per_case(lambda case, query: Number.of(float(fresh_feedback_means(case, 1).std(ddof=1)))),
    "fresh_score": per_case(fresh_feedback_score),
    "fresh_gamma": per_case(lambda case, query: Number.of(float(fresh_feedback_means(case, 0).mean()))),
    # Finite steps: the papers' ρ uses one-sided differences; for the controls only central ones are stored
    "rho": per_case(lambda case, query: finite_step_mean("rho_one_sided")(case)),
    "rho_gradient": per_case(lambda case, query: finite_step_mean("rho_gradient")(case)),
    "rho_random": per_case(lambda case, query: finite_step_mean("rho_random")(case)),
    "nudging": per_case(lambda case, query: finite_step_mean("nudge_credit")(case)),
    "nudging_lead": ratio_to_other(decrease(finite_step_mean("nudge_credit"))),
    "nudging_leader": largest_method(decrease(finite_step_mean("nudge_credit"))),
    "loss": per_case(lambda case, query: loss_change(case)),
    "loss_lead": ratio_to_other(decrease(loss_change)),
    "loss_leader": largest_method(decrease(loss_change)),
    # Detectors over the epochs
    "first_epoch": per_case(alarm_quantity),
    "saved": per_case(saved_quantity),
    "silent": no_detector_fires,
    # Gaps between groups of methods
    "growth_healthy": healthy_gap("D1", "healthy"),
    "growth_degenerate": healthy_gap("D1", "degenerate"),
    "growth_gap": healthy_gap("D1", "gap"),
    "floor_healthy": healthy_gap("D2", "healthy"),
    "floor_degenerate": healthy_gap("D2", "degenerate"),
    "floor_gap": healthy_gap("D2", "gap"),
    # Words
    "verdict": per_case(verdict_quantity),
    "verdict_by": per_case(verdict_by),
    "passes": per_case(check_passes),
    "mode_1": per_case(mode_1_quantity),
    "caught": per_case(caught_quantity),
    "caught_of": count_caught,
    "setting": run_setting,
}
