"""Concentration: does one layer hold most of the alignment?

Formula: kappa = max over l of c_l / sum of c_l, over layers above their null, without layers exact by construction
Threshold: fails above concentration (0.6) where at least 3 layers were examined
Mode: 2, low or concentrated credit
Role: reported beside the verdict; it never decides an edition's verdict
Misleads: with few layers above their null kappa is necessarily large; read the layers' cosines as well
"""

from __future__ import annotations

from functools import partial

from walkback.judge.evidence import Evidence
from walkback.judge.flag import Flag, factor
from walkback.judge.quantities import Quantities
from walkback.judge.thresholds import DiagnosticThresholds


def check(q: Quantities, evidence: Evidence, t: DiagnosticThresholds) -> Flag:
    a, limit = q.aggregates, t.concentration
    layers = a.concentration_layers
    flag = partial(
        Flag,
        "concentration",
        "credit concentration",
        threshold=limit,
        side="above",
        n=layers,
        counts="layers",
        decides=False,
    )
    kappa = a.concentration
    if not q.has_credit or kappa.status == "invalid":
        return flag("missing", kappa.reason, invalid=kappa.status == "invalid")
    if layers < t.concentration_layers:
        reason = kappa.reason if layers == 0 else f"{layers} layers are too few to call one of them dominant"
        return flag("not_informative", reason)
    if not kappa.ok:
        return flag("not_informative" if a.none_above_null else "missing", kappa.reason)
    value, layer = kappa.known, a.concentration_layer
    raised = value > limit
    return flag(
        "raised" if raised else "clear",
        f"layer {layer} holds {value:.0%} of the alignment above the null over {layers} layers"
        + (f" ({kappa.reason})" if kappa.reason else ""),
        value=value,
        layer=layer,
        margin=factor(value, limit),
        flips_at=value,
    )


CHECK = check
