"""A lint rule: its code, the function that finds problems, and the texts of its module's docstring."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache

from walkback.core.errors import InputError, unknown
from walkback.linting import LINTS
from walkback.linting.source import Source

Hit = tuple[ast.expr | ast.stmt | ast.excepthandler, str]
"""(node, message): the place, and one sentence that says what is wrong and why."""


@dataclass(frozen=True)
class Rule:
    """One rule. Its texts come from a docstring: a summary line, then "Why:", "Instead:" and "Pitfall:"."""

    code: str
    summary: str
    why: str
    instead: str
    pitfalls: tuple[int, ...]
    """Numbers of `walkback pitfalls`; empty where the mistake is related but not in that list."""
    find: Callable[[Source], Iterator[Hit]]

    @classmethod
    def of(cls, code: str, doc: str | None, find: Callable[[Source], Iterator[Hit]]) -> Rule:
        """Build a rule from the docstring of its module, `doc`."""
        summary, _, rest = (doc or "").strip().partition("\n")
        parts = {
            key: " ".join(text.split()) for key, text in re.findall(r"^(\w+):(.*?)(?=^\w+:|\Z)", rest, re.M | re.S)
        }
        pitfalls = tuple(int(number) for number in re.findall(r"\d+", parts["Pitfall"]))
        return cls(code, summary.strip(), parts["Why"], parts["Instead"], pitfalls, find)


@cache
def rules() -> dict[str, Rule]:
    """All rules by code, in the order of their codes."""
    found: dict[str, Rule] = {}
    for name in LINTS.names():
        rule: Rule = LINTS.get(name)
        if rule.code in found:
            raise InputError(f"Two lint rules have the code {rule.code}; one of them is '{name}'. Rename one.")
        found[rule.code] = rule
    return dict(sorted(found.items()))


def chosen_rules(select: str | None, ignore: str | None) -> list[Rule]:
    """The rules of `--select` (default: all) without those of `--ignore`; both are codes separated by commas."""
    wanted = codes(select) if select is not None else set(rules())
    remaining = wanted - (codes(ignore) if ignore is not None else set())
    if not remaining:
        raise InputError("--select and --ignore leave no rule to check. Select at least one code.")
    return [rule for code, rule in rules().items() if code in remaining]


def codes(text: str) -> set[str]:
    """The set of codes in a text such as "WB001,wb002"; an unknown code is an error."""
    named = {word.upper() for word in re.split(r"[,\s]+", text) if word}
    for code in sorted(named - rules().keys()):
        raise unknown("lint code", code, rules())
    return named
