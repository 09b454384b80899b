"""Check a stored run's record against the run that is asked for and its data, before the run is used."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from walkback.core.configuration import config_digest
from walkback.core.errors import InputError
from walkback.core.settings import MODULE
from walkback.data.dataset import Dataset
from walkback.nets.module_source import SOURCE
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


def refuse_changed_source(out: Path, resolved: ResolvedRun) -> None:
    """Refuse to begin a run beside one that differs only in the source of the network's module: it is that run, and its
    source has changed."""
    if SOURCE not in resolved.config.arch.settings or not out.is_dir():
        return
    wanted = _without_source(resolved.config.to_json())
    for path in store.find_runs(out):
        if path.name.rpartition("_")[0] != resolved.name.rpartition("_")[0]:
            continue
        run = store.open_run(path, without=(store.MODEL, store.RULE))
        if _without_source(run.record["config"]) == wanted:
            arch = resolved.config.arch.settings
            recorded, now = run.record["config"]["arch"].get(SOURCE), arch[SOURCE]
            raise InputError(
                f"The source of the network '{arch[MODULE]}' has changed since {path} was begun (its hash is "
                f"{str(now)[:12]}…, recorded is {str(recorded)[:12]}…). Nothing was changed. Restore the source to "
                "resume, or use another --out."
            )


def _without_source(config: dict[str, Any]) -> dict[str, Any]:
    return {**config, "arch": {key: value for key, value in config["arch"].items() if key != SOURCE}}


def check_data(run: store.Run, data: Dataset) -> None:
    """Refuse data other than those the run was begun with."""
    recorded = run.record["data"].get("digest")
    if recorded != data.digest:
        raise InputError(
            f"{run.path} was begun on data with sha256 {str(recorded)[:12]}…, but '{run.record['data'].get('name')}' "
            f"here has {data.digest[:12]}…. Nothing was changed. Resume it where its data are, or use another --out."
        )
