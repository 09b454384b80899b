"""The published figures: all of them are there, and every one can be found in the runs of its study."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import pytest

from walkback.training.resolved_run import resolve
from walkback_papers.published.agree import FIGURE_KINDS
from walkback_papers.published.figure import figures, sections
from walkback_papers.published.finder import Finder, recipes_at
from walkback_papers.published.parse_number import parse
from walkback_papers.published.quantities import QUANTITIES
from walkback_papers.results import Results
from walkback_papers.run_studies import studies_of
from walkback_papers.scale import PAPER, SMOKE
from walkback_papers.variants import variants

NUMBERS = Path(__file__).with_name("published_numbers.txt")
"""Our transcription of every number the papers' results hold, by section; labels such as epochs and λ are left out."""


def test_every_number_of_the_papers_results_has_a_row():
    """By section, and as often as it is printed there."""
    token = re.compile(r"[-+]?\d[\d,]*(?:\.\d+)?(?:e[-+]?\d+)?|[✓✗]")
    listed = dict(line.split(": ") for line in NUMBERS.read_text().splitlines())
    assert list(listed) == [section.name for section in sections()]
    for section in sections():
        # One figure may stand beside several methods of ours: it is printed once.
        once = {figure.id.partition(":")[0]: figure.text for figure in section.figures}
        texts = " ".join(once.values()).replace("−", "-").replace("–", " ").replace("…", " ")
        rows = Counter(found.lstrip("+").rstrip(",") for found in token.findall(texts))
        wanted = Counter(listed[section.name].split())
        assert not wanted - rows, f"{section.name} lacks {dict(wanted - rows)}"


def test_a_figure_may_be_over_several_baselines():
    found = figures()
    over = [found[f"cifar100/fa-margin@P2:{name}-shell"] for name in ("dfa", "bp")]
    assert [figure.ask.over for figure in over] == ["DFA shell", "BP shell"]
    assert [figure.what for figure in over] == [f"FA, over the frozen baseline (over {n} shell)" for n in ("DFA", "BP")]
    assert {figure.text for figure in over} == {"−4.5 pp"}


def test_ids_are_unique_and_everything_named_is_known():
    every = [figure for section in sections() for figure in section.figures]
    assert len({figure.id for figure in every}) == len(every) > 300
    known = {variant.name for variant in variants(PAPER)}
    for figure in every:
        assert figure.missing or figure.ask.quantity in QUANTITIES, figure.id
        assert set(figure.variants) <= known, figure.id
        assert (figure.batch is None) == (figure.kind != "norm_g"), figure.id
        assert not figure.twin or figure.twin in figures(), figure.id
        assert figure.printed is not None or FIGURE_KINDS[figure.kind].by in ("words", "epoch"), figure.id
    studies_of(sorted({figure.study for figure in every}))


def test_every_quantity_is_used():
    assert {figure.ask.quantity for figure in figures().values() if not figure.missing} == set(QUANTITIES)


def test_figures_in_two_conventions_differ_by_about_eight():
    """What makes 1024 the batch of one of them."""
    pairs = [(figure, figures()[figure.twin]) for figure in figures().values() if figure.twin]
    assert len(pairs) == 5
    for one, other in pairs:
        assert (one.batch, other.batch) == (1024, 128)
        assert 7 < parse(other.text).low / parse(one.text).low < 9.5


CLOSE = ("deep", "cosine", "hidden", "gradient", "deep_least", "deep_most")
"""What may be asked for after an epoch, of a network that was measured in full there."""


@pytest.mark.parametrize("scale", [SMOKE, PAPER], ids=lambda scale: scale.name)
def test_the_study_of_a_figure_takes_what_the_figure_needs(scale):
    """Its runs, its looks after an epoch, its finite steps: the command on the page makes them."""
    for name in {figure.study for figure in figures().values()}:
        (study,) = studies_of([name]).values()
        runs = recipes_at(name, scale.name)
        epochs_to_measure = {
            (resolve(config).name, epoch) for config, epochs in study.epochs_to_measure(scale) for epoch in epochs
        }
        finite = {resolve(config).name for config in study.functional(scale)}
        find = Finder(Results(Path("nowhere")), scale, name)
        for figure in figures().values():
            ask = figure.ask
            if figure.study != name or figure.missing or not ask.ours:
                continue
            for config in [] if ask.places else find.runs(ask.ours, ask.place, ask.epochs, ask.penalty):
                run = resolve(config).name
                assert run in runs, figure.id
                if ask.quantity in CLOSE and ask.epoch is not None:
                    assert (run, ask.epoch) in epochs_to_measure, figure.id
                if ask.quantity == "block_outputs":
                    assert (run, 0) in epochs_to_measure, figure.id
                if ask.quantity.startswith(("rho", "nudging")):
                    assert run in finite, figure.id
