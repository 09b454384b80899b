"""Planted runs of every kind that the published figures need."""

from __future__ import annotations

from pathlib import Path

from planted import PlantedRuns, log_row

from walkback_papers.scale import METHODS, SMOKE
from walkback_papers.tables import with_penalty

MEASURED = {"growth": 3.0, "grad": 2e-5, "cosines": [0.4, 0.1, 0.0, -0.1, 0.2], "group_cos": 0.25, "fresh": 0.03}


def plant_methods(folder: Path) -> PlantedRuns:
    """Backprop and FA healthy, DFA exploded, with different values in the two seeds."""
    made = PlantedRuns(folder)
    log = [
        log_row(1, growth=2, grad=1e-5, accuracy=0.2, loss=2.5),
        log_row(2, growth=20, grad=7e-7, accuracy=0.3, loss=2.0),
        log_row(3, growth=70, grad=5e-8, accuracy=0.31, loss=1.5),
    ]
    made.plant(SMOKE.runs([METHODS["BP"]], place="wide"), accuracy=0.5, shell=0.1)
    made.plant(
        SMOKE.runs([METHODS["BP"]]), accuracy=[0.60, 0.62], shell=0.4, measured={"cosines": 1.0}, log=[log_row(1)]
    )
    made.plant(
        SMOKE.runs([METHODS["DFA"]]),
        accuracy=[0.30, 0.34],
        shell=[0.35, 0.36],
        measured=MEASURED | {"branch": [30.0, 300.0, 30.0, 300.0]},
        weights=(20.0, 30.0),
        log=log,
        measured_after={
            0: MEASURED | {"growth": 1.0, "grad": 8e-3, "branch": 3.0},
            1: MEASURED | {"cosines": [0.5, 0.01, 0.02, 0.03, 0.04]},
            2: MEASURED,
            3: MEASURED | {"cosines": [-0.9, 0.2, 0.3, 0.2, 0.3]},
        },
        functional={"rho": 0.7, "rho_one_sided": [0.9, 0.1, 0.2, 0.3, 0.4], "rho_random": 0.01},
    )
    for name, nudge in (("DFA", -1e-3), ("FA", -2e-3)):
        made.plant(
            SMOKE.runs([with_penalty(METHODS[name], 1e-2)], epochs="short"),
            accuracy=0.5,
            shell=0.4,
            measured=MEASURED,
            log=[log_row(1, loss=2.0), log_row(2, loss=2.0 + 500 * nudge)],
            functional={"nudge_credit": nudge},
        )
    for name, growth, grad in (("State Bridge", 100.0, 1e-9), ("Credit Bridge", 60.0, 1e-8), ("EP", 5.0, 1e-4)):
        made.plant(SMOKE.runs([METHODS[name]]), accuracy=0.3, shell=0.4, measured={"growth": growth, "grad": grad})
    return made
