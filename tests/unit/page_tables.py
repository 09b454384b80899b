"""Parsers that read tables and lists of (name, text) pairs back from Markdown, LaTeX and HTML pages."""

from __future__ import annotations

import re
from html.parser import HTMLParser

Rows = dict[str, list[list[str]]]
"""Rows of cells by the heading above them; a (name, text) pair is a row of two."""
MATH = {"pm": "±", "geq": "≥", "leq": "≤", "|": "‖", "uparrow": "↑", "downarrow": "↓", "to": "→", "approx": "≈"}
MATH |= {"Gamma": "Γ", "rho": "ρ", "lambda": "λ", "sigma": "σ", "kappa": "κ", "eta": "η", "times": "×"}
WORDS = {"textless": "<", "textgreater": ">", "textbar": "|", "textendash": "–", "textasciitilde": "~"}
WORDS |= {"textbackslash": "\\", "textasciicircum": "^"}


def read(form: str, source: str) -> Rows:
    """The rows of a page in the format `md`, `tex` or `html`."""
    return {"md": _markdown, "tex": _latex, "html": _html}[form](source)


def _markdown(source: str) -> Rows:
    rows: Rows = {}
    title = ""
    for line in source.splitlines():
        if line.startswith("## "):
            title = line[3:]
        elif line.startswith("| "):
            rows.setdefault(title, []).append([_plain(cell) for cell in re.split(r"(?<!\\) \| ", line[2:-2])])
        elif pair := re.match(r"- \*\*(.+?)\*\*: (.*)", line):
            rows.setdefault(title, []).append([_plain(pair[1]), _plain(pair[2])])
    # The head and the line below it are not rows.
    return {name: found[2:] if found[1:2] and set(found[1]) == {"---"} else found for name, found in rows.items()}


def _plain(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _latex(source: str) -> Rows:
    rows: Rows = {}
    title, body, tables = "", False, set[str]()
    for line in source.splitlines():
        if heading := re.fullmatch(r"\\subsection\*\{(.*)\}", line):
            title = untex(heading[1])
        elif line in (r"\midrule", r"\bottomrule"):
            body = line == r"\midrule"
            tables.add(title)
        elif body:
            cells = line.removesuffix(r" \\").split(" & ")
            rows.setdefault(title, []).append([untex(cell) for cell in cells])
        elif title in tables:
            continue  # The notes below a table.
        elif pair := re.match(r"\\item\[\] \\textbf\{(.+?)\} (.*)", line):
            rows.setdefault(title, []).append([untex(pair[1]), untex(pair[2])])
    return rows


def untex(text: str) -> str:
    """The plain text of escaped LaTeX."""
    text = text.replace(r"\allowbreak{}", "")
    text = re.sub(r"\\ensuremath\{\\([A-Za-z]+|\|)\}", lambda found: MATH[found[1]], text)
    text = re.sub(r"\\(text[a-z]+)\{\}", lambda found: WORDS.get(found[1], found[0]), text)
    text = re.sub(r"\{([\[\]*])\}", r"\1", text).replace("-{}", "-")
    return re.sub(r"\\([{}%_&#$])", r"\1", text)


def macros(source: str) -> dict[str, str]:
    """The texts of the macros a card defines, by their names without `wb`."""
    return {name: untex(text) for name, text in re.findall(r"\\newcommand\{\\wb(\w+)\}\{(.*)\}\n", source)}


class _Tables(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.rows: Rows = {}
        self.title, self.text, self.row = "", "", list[str]()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag in ("td", "dt", "dd", "h2"):
            self.text = ""
        if tag in ("tr", "dt"):
            self.row = []

    def handle_data(self, data: str) -> None:
        self.text += data

    def handle_endtag(self, tag: str) -> None:
        if tag == "h2":
            self.title = self.text
        if tag in ("td", "dt", "dd"):
            self.row.append(self.text)
        # A row of one cell holds the reason below a check.
        if tag in ("tr", "dd") and len(self.row) > 1:
            self.rows.setdefault(self.title, []).append(self.row)


def _html(source: str) -> Rows:
    page = _Tables()
    page.feed(source)
    page.close()
    return page.rows
