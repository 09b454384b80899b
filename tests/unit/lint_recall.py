"""How many variants of each mistake the linter finds; `python tests/unit/lint_recall.py` updates docs/linter.md.

Each file of lint_variants/ has ten ways to write a code's mistake and five pieces of correct code that resemble it,
each below a comment `# mistake: ...` or `# correct: ...` and checked as a file of its own. The variants were written
before the rule was looked at; one that is missed stays in the file and is listed on the page.
"""

from __future__ import annotations

import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from walkback.linting.engine import lint
from walkback.linting.rule import rules

VARIANTS = Path(__file__).parent / "lint_variants"
PAGE = Path(__file__).parents[2] / "docs" / "linter.md"
BEGIN, END = "<!-- variants -->\n", "<!-- /variants -->\n"


@dataclass(frozen=True)
class Variant:
    """A piece of code, whether it has the mistake, and the codes that were found in it."""

    code: str
    is_mistake: bool
    words: str
    found: frozenset[str]

    @property
    def is_caught(self) -> bool:
        return self.code in self.found


def variants() -> list[Variant]:
    """All variants in the order of the codes, each checked by all rules."""
    chosen = list(rules().values())
    found = []
    with tempfile.TemporaryDirectory() as folder:
        piece = Path(folder) / "piece.py"
        for path in sorted(VARIANTS.glob("*.py")):
            _, *parts = re.split(r"^# (mistake|correct): (.*)\n", path.read_text(), flags=re.MULTILINE)
            for kind, words, text in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
                piece.write_text(text)
                outcome = lint([piece], chosen)
                assert not outcome.unreadable, (path, words, outcome.unreadable)
                codes = frozenset(finding.code for finding in outcome.findings)
                found.append(Variant(path.stem.upper(), kind == "mistake", words, codes))
    return found


def table(all_variants: list[Variant]) -> str:
    """The page's table: how many of ten are found, and the others in words."""
    lines = ["| code | found | not found |", "|---|---|---|"]
    for code in rules():
        mistakes = [v for v in all_variants if v.code == code and v.is_mistake]
        missed = "; ".join(v.words for v in mistakes if not v.is_caught)
        lines.append(f"| {code} | {sum(v.is_caught for v in mistakes)} of {len(mistakes)} | {missed or 'none'} |")
    mistakes = [v for v in all_variants if v.is_mistake]
    lines.append(f"| all | {sum(v.is_caught for v in mistakes)} of {len(mistakes)} | |")
    return "\n".join(lines) + "\n"


def on_page(text: str) -> str:
    """The table as the page has it."""
    return text.partition(BEGIN)[2].partition(END)[0].strip("\n") + "\n"


def main() -> None:
    text = PAGE.read_text()
    PAGE.write_text(text.replace(on_page(text), table(variants())))


if __name__ == "__main__":
    main()
