"""From a configuration to the objects of one run, with every default filled in."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Literal

import torch

from walkback.core.configuration import RunConfig, SharedOptions
from walkback.core.errors import InputError, unknown
from walkback.core.random_streams import generator
from walkback.core.settings import (
    MODULE,
    Spec,
    build_settings,
    changed_settings,
    recorded_settings,
    require_dataclass,
    require_memory,
)
from walkback.core.tuning import TuningTable
from walkback.credit import RULES
from walkback.credit.oracle import OracleRule
from walkback.credit.rule import EXACT, CreditRule, refusal
from walkback.data import tensors
from walkback.data.catalog import DATA_SETS
from walkback.data.dataset import DataSource
from walkback.data.feed import Augment
from walkback.data.held_out import HeldOut, without_held_out
from walkback.nets import ARCHS
from walkback.nets.module_network import module_network
from walkback.nets.network import Leaves, Network
from walkback.training.optimisers import Optimiser, make_optimiser
from walkback.training.schedules import Schedule, make_schedule


@dataclass(frozen=True)
class ResolvedRun:
    """One run: its configuration with all defaults filled in, and the objects built from it."""

    config: RunConfig
    net: Network
    rule: CreditRule
    shared_options: SharedOptions
    source: DataSource
    method: str
    """The method as a user writes it, with the settings that differ from their defaults."""
    tuning: TuningTable | None = field(default=None, compare=False, repr=False)
    """The table that the learning rates of this run and of the runs it is compared with are chosen from, if tuned."""

    @cached_property
    def digest(self) -> str:
        """The configuration's digest, computed once."""
        return self.config.digest()

    @cached_property
    def name(self) -> str:
        """The run's directory name; the start of the digest distinguishes runs with different settings."""
        words = [self.method, self.config.arch.name, self.config.data.name, f"s{self.config.seed}"]
        plain = re.sub(r"[^A-Za-z0-9.=_+-]+", "-", "_".join(words).replace(":", "-").replace(",", "+"))
        return f"{plain}_{self.digest[:8]}"

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of its tensors: float32 for tf32, which is a precision of float32 matmuls."""
        return torch.float64 if self.config.dtype == "float64" else torch.float32

    @property
    def steps_per_epoch(self) -> int:
        """Steps per epoch; only full batches are used."""
        return self.source.train_size // self.config.batch

    @property
    def credit_site(self) -> Literal["output", "input"]:
        """The state whose credit trains a block; that of its output for an oracle, whatever its method's site."""
        return self.shared_options.site if self.shared_options.credit == "own" else "output"

    @property
    def augment(self) -> Augment:
        assert self.config.augment != "auto", "a resolved configuration has no 'auto'"
        return self.config.augment

    @cached_property
    def optimiser(self) -> Optimiser:
        return make_optimiser(self.config.optimizer)

    @cached_property
    def schedule(self) -> Schedule:
        return make_schedule(self.config.schedule)

    def params(self) -> Leaves:
        """The initial parameters, from the stream (seed, "init")."""
        return self._typed(self.net.init(generator(self.config.seed, "init")))

    def state(self) -> Leaves:
        """The rule's initial state, from the stream (seed, "feedback")."""
        return self._typed(self.rule.init(self.net, generator(self.config.seed, "feedback")))

    def noise(self, epoch: int, step: int) -> Leaves:
        """The noise of one step: the rule's from the stream (seed, "noise", epoch, step), the network's (dropout masks)
        from (seed, "dropout", epoch, step), the same for every method."""
        draws = generator(self.config.seed, "noise", epoch, step)
        own = self.net.draw(self.config.batch, generator(self.config.seed, "dropout", epoch, step))
        return self._typed(self.rule.draw(self.net, self.config.batch, draws) | own)

    def is_frozen(self, leaf: str) -> bool:
        """Whether this leaf is not trained: neither gradient nor weight decay changes it."""
        if self.shared_options.shell != "none" and leaf.startswith("blocks."):
            return True
        without_credit = any(leaf == name or leaf.startswith(f"{name}.") for name in self.rule.untrained(self.net))
        return without_credit or leaf in self.net.buffers

    def knobs(self) -> dict[str, float]:
        """The numbers that may differ between the models of one fleet."""
        return {"penalty": self.shared_options.penalty, **{f"rule.{k}": v for k, v in self.rule.knobs().items()}}

    def fleet_key(self) -> Hashable:
        """The settings that all models of one fleet must share; their learning rates may differ."""
        config = self.config
        shared = (config.epochs, config.batch, config.weight_decay, config.augment, config.dtype)
        recipe = (self.optimiser, self.schedule)
        reduction = self.shared_options.penalty_reduction
        return (self.net, self.rule.static(), self.credit_site, reduction, self.source, shared, recipe)

    def with_seed(self, seed: int) -> ResolvedRun:
        """The same run with another seed: nothing else in it depends on the seed."""
        return self if seed == self.config.seed else replace(self, config=replace(self.config, seed=seed))

    def with_lr(self, lr: float) -> ResolvedRun:
        """The same run with another learning rate."""
        return replace(self, config=replace(self.config, lr=lr))

    def tuned(self, table: TuningTable) -> ResolvedRun:
        """The same run with its method's own learning rate; so are the runs it is compared with."""
        return replace(self.with_lr(table.rates[self.method]), tuning=table)

    @cached_property
    def baselines(self) -> dict[str, ResolvedRun]:
        """The runs this method is compared with: its own frozen baseline, backprop's frozen baseline, and backprop.

        They have the same network, data and training settings. Empty for a frozen baseline itself.
        """
        if self.shared_options.shell != "none":
            return {}
        bp = self if self.method == "bp" else self._with_method(Spec("bp", {}))
        is_bp = self.config.method.name == "bp"
        return {
            "method_shell": self.frozen_baseline,
            "bp_shell": self.frozen_baseline if is_bp else bp.frozen_baseline,
            "bp": bp,
        }

    @cached_property
    def frozen_baseline(self) -> ResolvedRun:
        """The same training with the blocks frozen at random."""
        # A penalty does not change frozen blocks, so the frozen baseline is trained without one. For backprop neither
        # do site and credit, as its stem gets the gradient g_0 under all of them.
        if self.config.method.name == "bp":
            return self._with_method(Spec("bp", {"shell": "bp"}))
        own = {**self.config.method.settings, "shell": "method", "penalty": 0.0, "penalty_reduction": "sum"}
        return self._with_method(Spec(self.config.method.name, own))

    @cached_property
    def oracles(self) -> dict[str, ResolvedRun]:
        """The same training with exact credit; what differs from this run is due to the credit.

        `exact`: block l gets g_{l+1}; this is backprop's run where the method changes nothing but credit and penalty.
        `input`: block l gets g_l. `direction`: block l gets g_{l+1} with the norm of the method's own credit. Empty for
        frozen baselines, for oracles, and where the credit is exact at the block's output anyway; an oracle that is
        this run itself is left out.
        """
        options = self.shared_options
        exact_labels = set(self.rule.labels(self.net.depth)) == {EXACT}
        if options.shell != "none" or options.credit != "own" or (exact_labels and options.site == "output"):
            return {}
        found = {
            "exact": self._exact_oracle(),
            # Where the states change shape, g_l does not fit the block's output.
            **({"input": self._penalised_bp(site="input")} if self.net.has_one_shape else {}),
            "direction": self._with_credit("direction"),
        }
        return {kind: resolved for kind, resolved in found.items() if resolved.name != self.name}

    def _exact_oracle(self) -> ResolvedRun:
        if self.rule.untrained(self.net) or self.rule.normalises_error:
            return self._with_credit("exact")
        return self._penalised_bp() if self.shared_options.penalty > 0 else self.baselines["bp"]

    def _penalised_bp(self, site: Literal["output", "input"] = "output") -> ResolvedRun:
        """Backprop with this run's penalty."""
        options = self.shared_options
        reduction = options.penalty_reduction if options.penalty > 0 else "sum"
        settings = {"site": site, "penalty": options.penalty, "penalty_reduction": reduction}
        return self._with_method(Spec("bp", settings))

    def _with_credit(self, credit: Literal["exact", "direction"]) -> ResolvedRun:
        return self._with_method(Spec(self.config.method.name, {**self.config.method.settings, "credit": credit}))

    def _with_method(self, method: Spec) -> ResolvedRun:
        made = resolve(replace(self.config, method=method), self.source)
        return made if self.tuning is None or made.method not in self.tuning.rates else made.tuned(self.tuning)

    def _typed(self, leaves: Leaves) -> Leaves:
        return {name: leaf.to(self.dtype) for name, leaf in leaves.items()}


def resolve(config: RunConfig, own_data: DataSource | None = None) -> ResolvedRun:
    """Look every name up, check every setting, and fill in the defaults.

    `own_data` is the user's own data set; it replaces the one that the configuration names.
    """
    source = _source(config.data, own_data)
    shape = {"input_shape": source.input_shape, "classes": source.classes}
    what = f"the architecture '{config.arch.name}'"
    if MODULE in config.arch.settings:
        net: Network = module_network(config.arch, source.input_shape, source.classes)
    else:
        net = build_settings(ARCHS.get(config.arch.name), config.arch.settings, what, **shape)
        require_memory(net.depth * sum(width * height for _, width, height in net.block_linears), what)
    rule, shared_options = _method(config.method)
    if net.per_token != source.per_token:
        kinds = {True: "a label for each token", False: "one label for each sample"}
        raise InputError(
            f"'{config.arch.name}' needs {kinds[net.per_token]}, and '{config.data.name}' has "
            f"{kinds[source.per_token]}. Use token data, such as --data markov, with --arch gpt_mini."
        )
    reason = refusal(rule, net)
    if reason:
        raise InputError(f"The method '{config.method.name}' is not defined on '{config.arch.name}': {reason}.")
    if shared_options.site == "input" and not net.has_one_shape:
        raise InputError(
            f"site=input trains a block by the credit of its input, and on '{config.arch.name}' the states change "
            "their shape from block to block. Leave site out."
        )
    if config.batch > source.train_size:
        raise InputError(
            f"batch is {config.batch}, but '{config.data.name}' has only {source.train_size} training samples. "
            "Use a smaller batch."
        )
    if config.augment not in ("auto", "none") and not source.is_image:
        raise InputError(f"augment={config.augment} needs images; '{config.data.name}' has vectors. Use augment=none.")
    augment = config.augment
    if augment == "auto":
        augment = "crop_flip" if source.is_image else "none"
    settings = recorded_settings(rule) | recorded_settings(shared_options)
    filled = replace(
        config,
        method=Spec(config.method.name, settings),
        arch=Spec(config.arch.name, net.settings),
        data=Spec(config.data.name, source.settings()),
        augment=augment,
        optimizer=_filled(config.optimizer, RunConfig.optimizer, make_optimiser),
        schedule=_filled(config.schedule, RunConfig.schedule, make_schedule),
    )
    shown = {
        k: v
        for k, v in (changed_settings(rule) | changed_settings(shared_options)).items()
        if k != "site" or len(rule.sites) > 1
    }
    if shared_options.credit != "own":
        rule = OracleRule(rule, shared_options.credit, shared_options.site)
    return ResolvedRun(filled, net, rule, shared_options, source, str(Spec(config.method.name, shown)))


def _filled(spec: Spec, default: Spec, make: Callable[[Spec], object]) -> Spec:
    """The optimiser or schedule with all its settings; the default one is the default, however it was written."""
    made = make(spec)
    return default if made == make(default) else Spec(spec.name, recorded_settings(made))


def _source(spec: Spec, own_data: DataSource | None) -> DataSource:
    settings, held_out = without_held_out(spec.settings)
    source = own_data or _catalog_source(Spec(spec.name, settings))
    return source if held_out is None or isinstance(source, HeldOut) else HeldOut(source, held_out)


def _catalog_source(spec: Spec) -> DataSource:
    if spec.name == tensors.TENSORS_NAME:
        raise InputError("This run was trained on tensors that were passed in Python. Pass them again as the data.")
    source: DataSource = build_settings(DATA_SETS.get(spec.name), spec.settings, f"the data set '{spec.name}'")
    return source


def _method(spec: Spec) -> tuple[CreditRule, SharedOptions]:
    """Split a method's settings into its rule's own and those that every rule shares."""
    rule_class = RULES.get(spec.name)
    what = f"the method '{spec.name}'"
    if not (isinstance(rule_class, type) and issubclass(rule_class, CreditRule)):
        raise InputError(f"{what} is {rule_class!s:.60}; expected a class of CreditRule. Ask its package's author.")
    require_dataclass(rule_class, what)
    own = [f.name for f in fields(rule_class)]
    shared = [f.name for f in fields(SharedOptions)]
    for key in spec.settings:
        if key not in own and key not in shared:
            raise unknown(f"setting of {what}", key, own + shared)
    rule: CreditRule = build_settings(rule_class, {k: v for k, v in spec.settings.items() if k in own}, what)
    shared_options = build_settings(SharedOptions, {k: v for k, v in spec.settings.items() if k in shared}, what)
    if shared_options.site not in rule.sites:
        raise InputError(
            f"{what} is defined for site={rule.sites[0]} only, not site={shared_options.site}. Leave site out."
        )
    if spec.name == "bp" and shared_options.shell == "method":
        shared_options = replace(shared_options, shell="bp")
    if spec.name != "bp" and shared_options.shell == "bp":
        raise InputError(
            "shell=bp is backprop's frozen baseline, whatever the method. Write 'bp:shell=bp' for it, "
            f"or '{spec.name}:shell=method' for the frozen baseline trained by {spec.name}."
        )
    return rule, shared_options
