"""Two small studies for tests of the framework: they train for seconds and use every part a study can have."""

from __future__ import annotations

from collections.abc import Sequence

from walkback.core.configuration import RunConfig
from walkback.report.cells import Cell
from walkback.report.study_report import CellGrid, Figure, Finding, Plot, Series, StudyReport, Table
from walkback_papers.results import Results
from walkback_papers.scale import Place, Scale
from walkback_papers.study import Study
from walkback_papers.tables import (
    alarm,
    caption,
    first_alarm,
    make_study_report,
    mean_cell,
    method_label,
    numbers_cell,
    verdict_cell,
)

SCALE = Scale(
    name="smoke",
    seeds=(1,),
    settings={"lr": 0.01, "batch": 32},
    places={"resmlp": Place("resmlp:d=8,depth=2", "prototypes:train=128,test=256,dim=6,prototypes=8,labels=4")},
    epochs={"full": 3},
    functional_samples=256,
    words="as small as it gets",
)
HEADS = ("method", "accuracy", "frozen baseline", "aggregate cosine Γ", "D1 first", "three", "loss of epoch 1")


class Mini(Study):
    """Backprop and DFA; DFA is also measured after some epochs and in finite steps."""

    name = "mini"
    methods: tuple[str, ...] = ("bp", "dfa")

    def runs(self, scale: Scale) -> list[RunConfig]:
        return scale.runs(list(self.methods))

    def epochs_to_measure(self, scale: Scale) -> list[tuple[RunConfig, Sequence[int]]]:
        return [(config, (0, 1, 2)) for config in scale.runs(["dfa"])]

    def functional(self, scale: Scale) -> list[RunConfig]:
        return scale.runs(["dfa"])

    def report_results(self, results: Results, scale: Scale) -> StudyReport:
        methods = results.by_method(self.runs(scale))
        cases = [case for found in methods.values() for case in found]
        (dfa_case,) = results.cases(scale.runs(["dfa"]))
        rows = tuple(
            (
                Cell(method_label(method)),
                mean_cell([case.accuracy for case in found], ".3f"),
                mean_cell(found[0].report.evidence.frozen.get("method_shell", ()), ".3f"),
                numbers_cell(found, lambda case: case.report.quantities.aggregates.a1, "+.3f"),
                Cell(str(first_alarm(found[0], alarm("D1", found[0].report.thresholds)) or "never")),
                verdict_cell(found, "three"),
                Cell(f"{found[0].log[0]['loss']:.3f}", found[0].log[0]["loss"]),
            )
            for method, found in methods.items()
        )
        curves = tuple(
            Series(method_label(method), range(1, 4), [row["test_acc"] for row in found[0].log])
            for method, found in methods.items()
        )
        early = [float(dfa_case.measurements_after(epoch).arrays["grad_norm"][-1].mean()) for epoch in (1, 2)]
        rho = float(dfa_case.functional.arrays["rho"].mean())
        verdicts = tuple((found[0].report.verdict,) for found in methods.values())
        plots = (
            Plot("Accuracy", "epoch", "test accuracy", curves, levels={"chance": 0.25}),
            CellGrid("Verdicts", ("three",), tuple(map(method_label, methods)), verdicts),
        )
        return make_study_report(
            self.name,
            "Mini",
            "Does the framework work?",
            scale,
            cases,
            [
                Finding(
                    "finite-steps",
                    "Finite steps were taken.",
                    abs(rho) <= 1,
                    f"ρ = {rho:+.3f}; early gradients {early[0]:.3g}.",
                )
            ],
            tables=[Table("table", "All of it", HEADS, rows, caption(scale, cases))],
            figures=[Figure("figure", "Curves", plots, caption(scale, cases))],
        )


class Other(Mini):
    """Shares two of its runs with the first study and has one run of another seed."""

    name = "other"
    methods = ("dfa", "fa")

    def runs(self, scale: Scale) -> list[RunConfig]:
        return [*super().runs(scale), *scale.runs(["dfa"], seeds=[7])]


STUDIES: dict[str, Study] = {"mini": Mini(), "other": Other()}
