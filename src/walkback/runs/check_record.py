"""Check a stored run's record against the run that is asked for and its data, before the run is used."""

from __future__ import annotations

from walkback.core.configuration import config_digest
from walkback.core.errors import InputError
from walkback.data.dataset import Dataset
from walkback.runs import store
from walkback.training.resolved_run import ResolvedRun


def check_record(run: store.Run, resolved: ResolvedRun) -> None:
    """Refuse a record that contradicts itself or the resolved run."""
    record = run.record
    expected = {
        "run": resolved.name,
        "digest": resolved.digest,
        "method": resolved.method,
        "seed": resolved.config.seed,
        "dtype": resolved.config.dtype,
        "rule_has_state": bool(resolved.state()),
    }
    for key, value in expected.items():
        if record.get(key, value) != value:  # Which keys must be there is checked when the run is opened.
            raise store.damaged_run(
                run.path, f"{store.RECORD} has the {key} {record[key]!r}; the run of that name has {value!r}"
            )
    digest = config_digest(record["config"])
    if digest != record["digest"]:
        raise store.damaged_run(
            run.path,
            f"the configuration in {store.RECORD} has the digest {digest[:12]}…; recorded is {record['digest'][:12]}…",
        )


def check_data(run: store.Run, data: Dataset) -> None:
    """Refuse data other than those the run was begun with."""
    recorded = run.record["data"].get("digest")
    if recorded != data.digest:
        raise InputError(
            f"{run.path} was begun on data with sha256 {str(recorded)[:12]}…, but '{run.record['data'].get('name')}' "
            f"here has {data.digest[:12]}…. Nothing was changed. Resume it where its data are, or use another --out."
        )
