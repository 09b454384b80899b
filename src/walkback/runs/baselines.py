"""The frozen baselines and backprop runs that a method is compared with."""

from __future__ import annotations

from dataclasses import replace

from walkback.core.settings import Choice
from walkback.training.resolved_run import Recipe, resolve


def with_seed(recipe: Recipe, seed: int) -> Recipe:
    return resolve(replace(recipe.config, seed=seed), recipe.source)


def baselines(recipe: Recipe) -> dict[str, Recipe]:
    """The runs a method is held against: the same network and recipe with its blocks frozen, and backprop's.

    Empty for a shell: it is a baseline itself.
    """
    if recipe.treatment.shell != "none":
        return {}
    method = recipe.config.method
    own_shell = "bp" if method.name == "bp" else "method"
    # Frozen blocks are not moved by a penalty, so the shell without one is the same network.
    shell = {**method.settings, "shell": own_shell, "penalty": 0.0, "penalty_reduction": "sum"}
    methods = {
        "method_shell": Choice(method.name, shell),
        "bp_shell": Choice("bp", {"shell": "bp"}),
        "bp": Choice("bp", {}),
    }
    return {name: resolve(replace(recipe.config, method=m), recipe.source) for name, m in methods.items()}
