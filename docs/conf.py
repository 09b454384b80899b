"""Sphinx settings. Lists of checks, thresholds, studies and commands are generated from the code."""

from __future__ import annotations

import ast
import inspect
import json
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

from docutils.nodes import SkipNode
from docutils.utils.math.latex2mathml import tex2mathml

from walkback.cli.main import COMMANDS
from walkback.core.version import __version__
from walkback.credit import RULES
from walkback.judge.checks import CHECKS
from walkback.judge.glossary import GLOSSARY
from walkback.judge.thresholds import DiagnosticThresholds
from walkback.nets import ARCHS
from walkback.report.markdown import markdown_escape
from walkback_papers import STUDIES
from walkback_papers.published.figure import PAPER_TITLES

RESULTS = Path(__file__).parents[1] / "results" / "paper"

project = "walkback"
author = "The walkback authors"
copyright = "2026, the walkback authors"
version = release = __version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton"]
source_suffix = {".md": "myst-nb", ".ipynb": "myst-nb"}
nb_execution_mode = "off"  # A test executes the tutorial; the site shows its stored outputs.
nb_ipywidgets_js: dict[str, Any] = {}  # Nothing is loaded from the network.
copybutton_exclude = ".linenos, .gp, .go"
copybutton_prompt_text = "$ "
copybutton_line_continuation_character = "\\"
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "substitution"]
myst_heading_anchors = 2
html_theme = "furo"
html_title = "walkback"
html_static_path = ["static"]
html_css_files = ["walkback.css"]
html_math_renderer = "mathml"
html_show_sourcelink = False
exclude_patterns = ["_build"]
autodoc_typehints = "description"
autodoc_member_order = "bysource"


def _threshold_table() -> str:
    """Each threshold with its default and its own sentence, which stands below the field in the source."""
    body = ast.parse(inspect.getsource(DiagnosticThresholds)).body[0]
    assert isinstance(body, ast.ClassDef)
    said = {}
    for field, after in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(after, ast.Expr):
            said[ast.unparse(field.target)] = ast.literal_eval(after.value)
    rows = [f"| `{field.name}` | {field.default:g} | {said[field.name]} |" for field in fields(DiagnosticThresholds)]
    return "\n".join(["| field | default | meaning |", "|---|---|---|", *rows])


def _facts(entry: Any) -> str:
    """A check in the words of `walkback explain`."""
    facts = {key: f"`{value}`" if key == "Formula" else value for key, value in entry.facts.items()}
    return "\n".join([f"> **{entry.summary}**", ">", *(f"> - *{key}*: {value}" for key, value in facts.items())])


def _list(catalog: Any, prefix: str = "") -> str:
    rows = [f"| `{prefix}{entry.name}` | {entry.summary} |" for entry in catalog.entries()]
    return "\n".join(["| name | what it is |", "|---|---|", *rows])


def _studies() -> str:
    rows = [
        f"| `{entry.name.replace('_', '-')}` | {entry.summary} | {entry.facts.get('Papers', '')} |"
        for entry in STUDIES.entries()
    ]
    return "\n".join(["| study | question | in the papers |", "|---|---|---|", *rows])


def _captions() -> dict[str, str]:
    stored = json.loads((Path(__file__).parent / "pictures" / "pictures.json").read_text())
    # Underscores and asterisks of the caption are letters, not Markdown.
    return {name: re.sub(r"([_*])", r"\\\1", figure["caption"]) for name, figure in stored.items()}


def _glossary() -> str:
    """Every term of the glossary module, which is the only place where the explanations are written."""
    terms = sorted(GLOSSARY, key=lambda term: term.strip("|@").lower())
    return "\n\n".join(f"**{markdown_escape(term)}**\n: {markdown_escape(GLOSSARY[term])}" for term in terms)


def _gallery() -> str:
    """Every figure of the published studies: its title, its first sentence of caption, and the study it belongs to."""
    parts = []
    for path in sorted(RESULTS.glob("*/study.json")):
        study = json.loads(path.read_text("utf-8"))
        for figure in study["figures"]:
            place = f"../results/paper/{study['name']}"
            title = markdown_escape(figure["title"])
            parts.append(
                f"```{{figure}} {place}/{figure['name']}.svg\n:alt: {figure['title']}\n"
                f":target: {place}/{figure['name']}.svg\n\n{title}. {markdown_escape(study['question'])} "
                f'(<a href="{place}/index.html">{study["name"]}</a>)\n```'
            )
    return "\n\n".join(parts)


def _rules() -> str:
    rows = [f"| `{entry.name}` | {entry.summary} | {entry.facts['Citation']} |" for entry in RULES.entries()]
    return "\n".join(["| method | what it is | citation |", "|---|---|---|", *rows])


myst_substitutions = {
    "t": {field.name: f"{field.default:g}" for field in fields(DiagnosticThresholds)},
    "thresholds": _threshold_table(),
    # How far a cosine can move when one of its vectors turns by the angle that is still called valid.
    "moved": f"{(2 * (1 - DiagnosticThresholds.direction_valid_cos)) ** 0.5:.2g}",
    "explain": {entry.name: _facts(entry) for entry in CHECKS.entries()},
    "caption": _captions(),
    "commands": _list(COMMANDS, "walkback "),
    "networks": _list(ARCHS),
    "checks": _list(CHECKS),
    "studies": _studies(),
    "glossary": _glossary(),
    "gallery": _gallery(),
    "rules": _rules(),
    "papers": PAPER_TITLES,
}


def _mathml(tex: str, as_block: bool = False) -> str:
    # The one usual command that docutils' converter does not know.
    return tex2mathml(tex.replace(r"\dots", r"\ldots"), as_block=as_block)


def _inline(translator: Any, node: Any) -> None:
    translator.body.append(_mathml(node.astext()))
    raise SkipNode


def _block(translator: Any, node: Any) -> None:
    translator.body.append(f'<div class="math">{_mathml(node.astext(), as_block=True)}</div>')
    raise SkipNode


def _results_beside(app: Any, error: Exception | None) -> None:
    """Pages link to ../results, which lies beside docs/: let it lie beside the site too."""
    link = Path(app.outdir).parent / "results"
    if error is None and not link.is_symlink():
        link.symlink_to(Path(__file__).parents[1] / "results", target_is_directory=True)


def setup(app: Any) -> None:
    """Formulas become MathML while the site is built: no script, no fonts, nothing to fetch when it is read."""
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))
    app.connect("build-finished", _results_beside)
