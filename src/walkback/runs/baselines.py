"""The frozen baselines and backprop runs that a method is compared with."""

from __future__ import annotations

from dataclasses import replace

from walkback.core.settings import Spec
from walkback.training.resolved_run import ResolvedRun, resolve


def with_seed(resolved: ResolvedRun, seed: int) -> ResolvedRun:
    return resolve(replace(resolved.config, seed=seed), resolved.source)


def baselines_of(resolved: ResolvedRun) -> dict[str, ResolvedRun]:
    """The runs a method is held against: the same network and recipe with its blocks frozen, and backprop's.

    Empty for a shell: it is a baseline itself.
    """
    if resolved.shared_options.shell != "none":
        return {}
    method = resolved.config.method
    own_shell = "bp" if method.name == "bp" else "method"
    # Frozen blocks are not moved by a penalty, so the shell without one is the same network.
    shell = {**method.settings, "shell": own_shell, "penalty": 0.0, "penalty_reduction": "sum"}
    methods = {
        "method_shell": Spec(method.name, shell),
        "bp_shell": Spec("bp", {"shell": "bp"}),
        "bp": Spec("bp", {}),
    }
    return {name: resolve(replace(resolved.config, method=m), resolved.source) for name, m in methods.items()}
