"""A card as LaTeX for \\input: a macro for each number to quote, then booktabs tables. Compiles with pdflatex."""

from __future__ import annotations

import re
from collections.abc import Iterable

from walkback.report.cards import view
from walkback.report.sections import Card, Section

_ESCAPES = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "%": r"\%",
    "_": r"\_",
    "&": r"\&",
    "#": r"\#",
    "$": r"\$",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    # After a line break \\ these characters would be read as its arguments.
    "[": "{[}",
    "]": "{]}",
    "*": "{*}",
    '"': r"\textquotedbl{}",
    "±": r"\ensuremath{\pm}",
    "×": r"\ensuremath{\times}",
    "–": r"\textendash{}",
    "—": r"\textemdash{}",
    "…": r"\ldots{}",
    "≥": r"\ensuremath{\geq}",
    "≤": r"\ensuremath{\leq}",
    "↑": r"\ensuremath{\uparrow}",
    "↓": r"\ensuremath{\downarrow}",
    "‖": r"\ensuremath{\|}",
    "→": r"\ensuremath{\to}",
    "≈": r"\ensuremath{\approx}",
    "≠": r"\ensuremath{\neq}",
    "−": r"\ensuremath{-}",
    "·": r"\ensuremath{\cdot}",
    "∞": r"\ensuremath{\infty}",
    "Σ": r"\ensuremath{\Sigma}",
    "√": r"\ensuremath{\surd}",
    "²": r"\ensuremath{^2}",
    "’": "'",
    "µ": r"\ensuremath{\mu}",
    "Γ": r"\ensuremath{\Gamma}",
    "Δ": r"\ensuremath{\Delta}",
    "α": r"\ensuremath{\alpha}",
    "β": r"\ensuremath{\beta}",
    "γ": r"\ensuremath{\gamma}",
    "δ": r"\ensuremath{\delta}",
    "ε": r"\ensuremath{\varepsilon}",
    "η": r"\ensuremath{\eta}",
    "θ": r"\ensuremath{\theta}",
    "κ": r"\ensuremath{\kappa}",
    "λ": r"\ensuremath{\lambda}",
    "μ": r"\ensuremath{\mu}",
    "ρ": r"\ensuremath{\rho}",
    "σ": r"\ensuremath{\sigma}",
    "τ": r"\ensuremath{\tau}",
}
_DIGITS = dict(
    zip("0123456789", ("Zero", "One", "Two", "Three", "Four", "Five", "Six", "Seven", "Eight", "Nine"), strict=True)
)
COLUMNS = {
    "claims": r"llp{0.5\linewidth}",
    "aggregates": r"llp{0.5\linewidth}",
    "checks": r"p{0.15\linewidth}lllp{0.13\linewidth}lp{0.12\linewidth}",
}
"""Column specifications by section id. Columns of words have a fixed width; columns of numbers fit their content."""
LONG = 24
"""Words with more letters than this may be broken across lines."""
_LAST_LETTER = "\u017f"
"""The last character of Latin Extended-A; pdflatex prints no later one without further packages."""


def latex(card: Card) -> str:
    """The whole card as LaTeX."""
    shown = view(card)
    macros = {macro(name): text for name, text in shown.numbers}
    parts = [
        f"% Written by walkback {latex_escape(shown.version)}.",
        r"% Needs \usepackage{booktabs} and \usepackage[T1]{fontenc}.",
        # \let first: a second card in the same paper then replaces the macros; \newcommand alone would be an error.
        *(f"\\let{name}\\relax\\newcommand{{{name}}}{{{latex_escape(text)}}}" for name, text in macros.items()),
        "",
        # Hashes and paths have few line breaks; \sloppy stretches spaces instead of printing into the margin.
        "\\begingroup\\sloppy",
        f"\\section*{{{latex_escape(shown.title)}: {latex_escape(shown.verdict_text)}}}",
        f"\\textbf{{{breakable(shown.explanation)}}}",
        "",
        *(f"{breakable(line)}\\par" for line in (*shown.summary_lines, shown.facts)),
        *(line for section in shown.sections for line in latex_table(section)),
        "\\par\\endgroup",
    ]
    return "\n".join(parts) + "\n"


def macro(name: str) -> str:
    r"""A macro name, which LaTeX allows letters only in: D1_result becomes \wbDOneResult."""
    spelled = "".join(_DIGITS.get(character, character) for character in name)
    words = re.findall(r"[A-Za-z]+", spelled)
    return "\\wb" + "".join(word[0].upper() + word[1:] for word in words)


def latex_escape(text: str) -> str:
    """Escape a text so that no character of it is a command; a character that cannot be printed becomes [U+XXXX]."""
    escaped = "".join(map(_escaped, " ".join(text.split())))
    return re.sub(r"-(?=-)", "-{}", escaped)  # Two hyphens would become a dash.


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if " " <= character <= "~" or ("\u00c0" <= character <= _LAST_LETTER):
        return character
    return f"{{[}}U+{ord(character):04X}{{]}}"


def breakable(text: str) -> str:
    """Escape a text and add invisible break points inside its long words, such as hashes and run names."""
    return " ".join(_with_breaks(word) if len(word) > LONG else latex_escape(word) for word in text.split())


def _with_breaks(word: str) -> str:
    pieces = re.split(r"(?<=[/_=+,:])|(?<=[0-9a-f]{16})", word)
    return r"\allowbreak{}".join(latex_escape(piece) for piece in pieces if piece)


def latex_table(section: Section, columns: str = "") -> Iterable[str]:
    """The lines of one section: heading, rows and notes. `columns` replaces a table's default column specification."""
    yield from ("", f"\\subsection*{{{latex_escape(section.title)}}}")
    if section.kind == "table":
        default = COLUMNS.get(section.id, "l" * len(section.heads))
        size = "scriptsize" if len(section.heads) > 4 else "footnotesize"
        yield from (
            f"\\begin{{center}}\\{size}\\setlength{{\\tabcolsep}}{{3pt}}",
            f"\\begin{{tabular}}{{@{{}}{columns or default}@{{}}}}",
        )
        yield from ("\\toprule", _row(section.heads), "\\midrule")
        yield from map(_row, section.rows)
        yield from ("\\bottomrule", "\\end{tabular}", "\\end{center}")
        yield from _description_list(section.notes)
    elif section.kind == "pairs":
        yield from _description_list(section.rows)
    elif section.kind == "list":
        yield from ("\\begin{itemize}", *(f"\\item {breakable(row[0])}" for row in section.rows), "\\end{itemize}")
    else:
        yield from ("\\begin{flushleft}\\ttfamily", *(f"{breakable(row[0])}\\par" for row in section.rows))
        yield "\\end{flushleft}"


def _description_list(rows: Iterable[tuple[str, ...]]) -> list[str]:
    # The name is not the item's label, because LaTeX does not break labels across lines.
    items = [f"\\item[] \\textbf{{{breakable(name)}}} {breakable(text)}" for name, text in rows]
    return ["\\begin{description}", *items, "\\end{description}"] if items else []


def _row(cells: Iterable[str]) -> str:
    return " & ".join(map(breakable, cells)) + r" \\"
