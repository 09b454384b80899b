"""Measure stored runs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from walkback.core.configuration import RunConfig
from walkback.core.errors import InputError
from walkback.core.measurements import FIRST_EDITION, GROUP, SECOND_EDITION, Array, Measurements
from walkback.credit.rule import SIGN_FEEDBACK
from walkback.data.dataset import Dataset, DataSource
from walkback.data.feed import Normalise, TestSet
from walkback.measure.finite_steps import measure_functional
from walkback.measure.inputs import Groups, regroup
from walkback.measure.options import MeasureOptions
from walkback.measure.snapshot import majority_share, measure, unigram_entropy
from walkback.measure.subject import LocalLoss, NetworkSubject
from walkback.nets.network import Leaves
from walkback.runs import store
from walkback.runs.check_record import check_record
from walkback.runs.provenance import describe_device
from walkback.runs.tuning import with_stored_rates
from walkback.training.driver import set_exact_arithmetic
from walkback.training.resolved_run import ResolvedRun, resolve
from walkback.training.test_losses import test_losses

EVALUATION_SAMPLES = 8 * GROUP
"""Evaluation samples of a stored run: the first of its test set."""
PROBE_TRAINING_SAMPLES = 16 * GROUP
"""Training samples that probes are fitted on."""
FUNCTIONAL_SAMPLES = 4 * GROUP
"""The same for finite steps, which take well over a hundred forward passes per sample and layer."""


class RunMeasurer:
    """Measures finished runs on one device and reads each data set once.

    `own_data` is the data set of runs that were trained on tensors given in Python.
    """

    def __init__(self, data_root: Path | None, device: torch.device, own_data: DataSource | None = None):
        self.device = device
        self._data_root = data_root
        self._own_data = own_data
        self._known: dict[DataSource, Dataset] = {}
        set_exact_arithmetic(device)

    def resolved(self, run: store.Run) -> ResolvedRun:
        """The stored run's configuration, resolved and checked against its recorded digest; with
        the table that it was tuned by, if its folder has one."""
        if store.OWN_LOOP in run.record:
            raise InputError(
                f"{run.path} was trained by a function of yours, not by walkback. Run the audit again with resume to "
                "measure it; `walkback verify` checks its card."
            )
        resolved = resolve(RunConfig.from_json(run.record["config"]), self._own_data)
        self.check(run, resolved)
        return with_stored_rates(resolved, run.path.resolve().parent)

    def check(self, run: store.Run, resolved: ResolvedRun) -> None:
        """Refuse a stored run that is not this resolved run."""
        if resolved.digest != run.record["digest"]:
            raise store.damaged_run(run.path, "its configuration does not have the hash that was recorded")
        check_record(run, resolved)

    def data(self, run: store.Run, resolved: ResolvedRun) -> Dataset:
        """The run's data set; refused if it is not the one the run was trained on."""
        if resolved.source not in self._known:
            self._known[resolved.source] = resolved.source.load(self._data_root)
        data = self._known[resolved.source]
        recorded = run.record["data"].get("digest")
        if data.digest != recorded:
            raise InputError(
                f"{run.path} was trained on data with sha256 {str(recorded)[:12]}…, but "
                f"'{resolved.config.data.name}' here has {data.digest[:12]}…. Measure it where its data are."
            )
        return data

    def keep(self, source: DataSource, data: Dataset) -> None:
        """Register data that have been read already."""
        self._known[source] = data

    def measure(self, run: store.Run, resolved: ResolvedRun) -> Measurements:
        """One frozen pass and its float64 replay over the first test samples, credit included; and which of all test
        samples the run gets right, and how far its weights have come. Where the rule's state is gone there is no
        credit: none is made up."""
        first = resolved.params()
        params, state = self._weights(run, resolved, first)
        training = self._training_samples(run, resolved)
        taken = measure_network(resolved, params, state, self._tests(run, resolved), first, training)
        return self._with_run(taken, run, resolved, params, first)

    def measure_first_edition(self, run: store.Run, resolved: ResolvedRun) -> Measurements:
        """The same as a card of an older version was measured: without the quantities that it does not know, and marked
        so that its means are over the layers that the card's are over."""
        first = resolved.params()
        params, state = self._weights(run, resolved, first)
        subject, labels = _subject(resolved, params, state)
        known = None if labels is None else ["none" if label == SIGN_FEEDBACK else label for label in labels]
        options = MeasureOptions(
            labels=known, site=resolved.credit_site, null_space="all", check=False, updates=False, lesions=False
        )
        taken = measure(subject, _evaluation_samples(self._tests(run, resolved)), options)
        arrays = {name: array for name, array in taken.arrays.items() if name not in SECOND_EDITION}
        return self._with_run(Measurements(arrays, {**taken.facts, FIRST_EDITION: True}), run, resolved, params, first)

    def _with_run(
        self, taken: Measurements, run: store.Run, resolved: ResolvedRun, params: Leaves, first: Leaves
    ) -> Measurements:
        """The measurements with those of the whole test set, of the weights' change, and the run's origin."""
        arrays = {**taken.arrays, **_weight_change(first, params), "test_correct": self._right(run, resolved, params)}
        labels = self.data(run, resolved).test_y
        chance = {"majority_share": majority_share(labels)}
        if resolved.net.per_token:
            chance["unigram_entropy"] = unigram_entropy(labels)
            arrays["test_loss"] = self.losses(run, resolved)
        facts = {**taken.facts, "leaves": list(first), **chance, **self.origin(run)}
        return Measurements(arrays, facts)

    def measure_functional(
        self, run: store.Run, resolved: ResolvedRun, seed: int = 0, samples: int = FUNCTIONAL_SAMPLES
    ) -> Measurements:
        """Finite steps from the states of the first test samples; `seed` names the random directions."""
        params, state = self._weights(run, resolved, resolved.params())
        subject, labels = _subject(resolved, params, state)
        groups = regroup(_first(self._tests(run, resolved).batches(), samples), distinct=True)
        taken = measure_functional(subject, groups, labels=labels, site=resolved.credit_site, seed=seed)
        return Measurements(taken.arrays, {**taken.facts, **self.origin(run)})

    def origin(self, run: store.Run) -> dict[str, Any]:
        """The device of the measurement and the hashes of the measured weights."""
        return {"measured_on": describe_device(self.device), "files": run.record["files"]}

    def _weights(self, run: store.Run, resolved: ResolvedRun, first: Leaves) -> tuple[Leaves, Leaves | None]:
        """The run's parameters, with the shapes of `first`, and its rule's state; None if that file is missing."""
        params = _leaves(run, "model", run.model(), first, self.device)
        if run.lacks_rule_state:
            return params, None
        return params, _leaves(run, "rule", run.rule_state(), resolved.state(), self.device)

    def measure_answers(self, run: store.Run, resolved: ResolvedRun) -> Measurements:
        """Which of all test samples the run gets right, and no other measurement."""
        return Measurements({"test_correct": self.correct(run, resolved)}, self.origin(run))

    def correct(self, run: store.Run, resolved: ResolvedRun) -> Array:
        """1 for each test sample the run gets right, 0 for the others; of windows of tokens the share of right ones."""
        return self._right(run, resolved, _leaves(run, "model", run.model(), resolved.params(), self.device))

    def _right(self, run: store.Run, resolved: ResolvedRun, params: Leaves) -> Array:
        with torch.no_grad():
            found = [resolved.net.forward(params, x).argmax(-1) == y for x, y in self._tests(run, resolved).batches()]
        answers = torch.cat(found).cpu().numpy().astype(np.float64)
        right: Array = answers.reshape(len(answers), -1).mean(1)
        return right

    def losses(self, run: store.Run, resolved: ResolvedRun) -> Array:
        """The test loss of each sample, in nats; of windows of tokens, in nats a token."""
        params = _leaves(run, "model", run.model(), resolved.params(), self.device)
        found: Array = test_losses(resolved.net, params, self._tests(run, resolved)).cpu().numpy().astype(np.float64)
        return found

    def _training_samples(self, run: store.Run, resolved: ResolvedRun) -> tuple[Tensor, Tensor]:
        """The first training samples, as a probe sees them."""
        data = self.data(run, resolved)
        normalise = Normalise(data, resolved.dtype, self.device)
        return normalise(data.train_x[:PROBE_TRAINING_SAMPLES].to(self.device)), data.train_y[
            :PROBE_TRAINING_SAMPLES
        ].to(self.device)

    def _tests(self, run: store.Run, resolved: ResolvedRun) -> TestSet:
        return TestSet(self.data(run, resolved), resolved.dtype, self.device)


def measure_network(
    resolved: ResolvedRun,
    params: Leaves,
    state: Leaves | None,
    tests: TestSet,
    initial: Leaves | None = None,
    training: tuple[Tensor, Tensor] | None = None,
) -> Measurements:
    """Measure a network on the first test samples: with its rule, or without it if the rule's state is None.

    With its `initial` parameters, blocks are reset to them and skipped; with `training` samples, probes are fitted.
    """
    subject, labels = _subject(resolved, params, state)
    options = MeasureOptions(
        labels=labels,
        site=resolved.credit_site,
        initial=initial,
        train=training,
        lesions=initial is not None,
    )
    return measure(subject, _evaluation_samples(tests), options)


def _evaluation_samples(tests: TestSet) -> Groups:
    return regroup(_first(tests.batches(), EVALUATION_SAMPLES), distinct=True)


def _weight_change(first: Leaves, last: Leaves) -> dict[str, Array]:
    """Norms of the initial parameters, of the trained ones, and of their difference; in the order of `first`."""

    def sizes(leaves: Iterable[Tensor]) -> Array:
        found: Array = torch.stack([leaf.norm() for leaf in leaves]).cpu().numpy()
        return found

    pairs = [(leaf.to(last[name]).double(), last[name].double()) for name, leaf in first.items()]
    return {
        "weight_first": sizes(start for start, _ in pairs),
        "weight_last": sizes(end for _, end in pairs),
        "weight_moved": sizes(end - start for start, end in pairs),
    }


def _subject(
    resolved: ResolvedRun, params: Leaves, state: Leaves | None
) -> tuple[NetworkSubject, Sequence[str] | None]:
    """The network to measure and its layers' labels; without its rule's state it has neither rule nor labels."""
    if state is None:
        return NetworkSubject(resolved.net, params), None
    shared = resolved.shared_options
    # The blocks of a frozen baseline are not trained: there is no update to compare.
    trained = (
        LocalLoss(resolved.credit_site, shared.penalty, shared.penalty_reduction) if shared.shell == "none" else None
    )
    labels = resolved.rule.labels(resolved.net.depth)
    return NetworkSubject(resolved.net, params, resolved.rule, state, trained), labels


def _leaves(run: store.Run, what: str, arrays: store.Arrays, expected: Leaves, device: torch.device) -> Leaves:
    """Stored arrays as tensors, in the order of `expected`: a safetensors file has no order, and sums in another order
    differ in their last bits. Refused if names, shapes or types are not those of this network or rule."""
    got = {name: (array.shape, str(array.dtype)) for name, array in arrays.items()}
    wanted = {name: (tuple(leaf.shape), str(leaf.numpy().dtype)) for name, leaf in expected.items()}
    if got != wanted:
        name = sorted(set(got.items()) ^ set(wanted.items()))[0][0]
        raise store.damaged_run(
            run.path, f"{what}.safetensors does not hold this {what}: '{name}' differs in name, shape or type"
        )
    return {name: torch.from_numpy(arrays[name]).to(device) for name in expected}


def _first(batches: Sequence[tuple[Tensor, Tensor]], count: int) -> list[tuple[Tensor, Tensor]]:
    x, y = (torch.cat(parts)[:count] for parts in zip(*batches, strict=True))
    return [(x, y)]
