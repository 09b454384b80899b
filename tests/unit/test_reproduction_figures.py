"""The published figures: they are complete, and each can be computed from the runs of its study."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from walkback.training.resolved_run import resolve
from walkback_papers.published.agree import FIGURE_KINDS
from walkback_papers.published.figure import figures, sections
from walkback_papers.published.finder import Finder, study_runs_at
from walkback_papers.published.parse_number import parse
from walkback_papers.published.quantities import QUANTITIES
from walkback_papers.results import Results
from walkback_papers.run_studies import studies_of
from walkback_papers.scale import PAPER, SMOKE
from walkback_papers.variants import variants

NUMBERS = Path(__file__).with_name("published_numbers.txt")
"""Our transcription of every number in the papers' results, by section, without labels such as epochs and λ."""


def test_every_number_of_the_papers_results_has_a_row():
    """In its section, as often as it is printed there."""
    token = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?|[✓✗]")
    listed = dict(line.split(": ") for line in NUMBERS.read_text().splitlines())
    assert list(listed) == [section.name for section in sections()]
    for section in sections():
        # A figure compared with several methods of ours is printed once.
        once = {figure.id.partition(":")[0]: figure.text for figure in section.figures}
        texts = " ".join(once.values()).replace("−", "-").replace("–", " ").replace("…", " ")
        rows = Counter(found.lstrip("+").rstrip(",") for found in token.findall(texts))
        wanted = Counter(listed[section.name].split())
        assert not wanted - rows, f"{section.name} lacks {dict(wanted - rows)}"


def test_a_figure_may_be_over_several_baselines():
    found = figures()
    over = [found[f"cifar100/fa-margin@P2:{name}-shell"] for name in ("dfa", "bp")]
    assert [figure.query.over for figure in over] == ["DFA shell", "BP shell"]
    assert [figure.what for figure in over] == [
        f"FA, over the frozen baseline (over {n} frozen baseline)" for n in ("DFA", "BP")
    ]
    assert {figure.text for figure in over} == {"−4.5 pp"}


def test_ids_are_unique_and_everything_named_is_known():
    every = [figure for section in sections() for figure in section.figures]
    assert len({figure.id for figure in every}) == len(every) > 300
    known = {variant.name for variant in variants(PAPER)}
    for figure in every:
        assert figure.missing or figure.query.quantity in QUANTITIES, figure.id
        assert set(figure.variants) <= known, figure.id
        assert (figure.batch is None) == (figure.kind != "norm_g"), figure.id
        assert not figure.twin or figure.twin in figures(), figure.id
        assert figure.printed is not None or FIGURE_KINDS[figure.kind].by in ("words", "epoch"), figure.id
    studies_of(sorted({figure.study for figure in every}))


def test_every_quantity_is_used():
    assert {figure.query.quantity for figure in figures().values() if not figure.missing} == set(QUANTITIES)


def test_figures_in_two_conventions_differ_by_about_eight():
    """From this we infer that one of them is for a batch of 1024."""
    pairs = [(figure, figures()[figure.twin]) for figure in figures().values() if figure.twin]
    assert len(pairs) == 5
    for one, other in pairs:
        assert (one.batch, other.batch) == (1024, 128)
        assert 7 < parse(other.text).low / parse(one.text).low < 9.5


AFTER_EPOCH = ("deep", "cosine", "hidden", "gradient", "deep_least", "deep_most")
"""Quantities that need a full measurement where an epoch is given."""


@pytest.mark.parametrize("scale", [SMOKE, PAPER], ids=lambda scale: scale.name)
def test_the_study_of_a_figure_makes_what_the_figure_needs(scale):
    """The command on the page must make its runs, measurements after an epoch and finite steps."""
    for name in {figure.study for figure in figures().values()}:
        (study,) = studies_of([name]).values()
        runs = study_runs_at(name, scale.name)
        epochs_to_measure = {
            (resolve(config).name, epoch) for config, epochs in study.epochs_to_measure(scale) for epoch in epochs
        }
        finite = {resolve(config).name for config in study.functional(scale)}
        finder = Finder(Results(Path("nowhere")), scale, name)
        for figure in figures().values():
            query = figure.query
            if figure.study != name or figure.missing or not query.ours:
                continue
            for config in [] if query.places else finder.runs(query.ours, query.place, query.epochs, query.penalty):
                run = resolve(config).name
                assert run in runs, figure.id
                if query.quantity in AFTER_EPOCH and query.epoch is not None:
                    assert (run, query.epoch) in epochs_to_measure, figure.id
                if query.quantity == "block_outputs":
                    assert (run, 0) in epochs_to_measure, figure.id
                if query.quantity.startswith(("rho", "nudging")):
                    assert run in finite, figure.id
