"""The words of table heads: terms of the glossary, and plain words that need no explanation."""

from __future__ import annotations

import re

from walkback.core.errors import InputError
from walkback.judge.glossary import all_names, explain, normal, term_named

_PLAIN = """
    above after against all alone and at batch both by collapse counted counting data decided default difference
    draws each end epoch epochs failing false fast first float64 from frozen grow helps highest history holds images
    in is it its kept labels last lasts loss lowest mean measured median memory minus model move ms name nats
    neither network norm not of other outcome outputs over own per python random ranked rule samples sd seconds
    setting settings signs small smallest starting status step steps swept test the there threshold time to token
    train training true unchecked under up useful value vector weights what why with without x δ
"""
PLAIN_WORDS = frozenset(_PLAIN.split())
"""Everyday words, and those of training and statistics that every reader of such a table knows."""
_LONGEST = 4
"""Words of the longest term that is looked for in a head."""
_NUMBER = re.compile(r"[-+×=−–<>.≥≤]|[\d.,e+%×-]*\d[\d.,e+%×-]*l?")


def explained(head: str) -> dict[str, str]:
    """The terms of a table head with their explanations: the whole head if it is a term, else the terms in it."""
    try:
        return {term_named(head) or head: explain(head)}
    except InputError as error:
        terms, others = words_of(head)
        if not set(others) <= PLAIN_WORDS or not (terms or others):
            raise error
    return {term: explain(term) for term in terms} or {head: "Plain words; the table's caption says of what."}


def words_of(head: str) -> tuple[list[str], list[str]]:
    """The terms in a head, the longest at each place, and its other words; numbers are no words."""
    words = _words(head)
    terms: list[str] = []
    others: list[str] = []
    at = 0
    while at < len(words):
        for size in range(min(_LONGEST, len(words) - at), 0, -1):
            term = _TERMS.get(tuple(words[at : at + size]))
            if term is not None:
                terms.append(term)
                break
        else:
            size = 1
            if not _NUMBER.fullmatch(words[at]):
                others.append(words[at])
        at += size
    return list(dict.fromkeys(terms)), others


def _words(head: str) -> list[str]:
    split = normal(head).replace("·", " ").replace(" / ", " ").split()
    bare = [word.strip(",;:()").removesuffix("'s").removesuffix("'") for word in split]
    return [word for word in bare if word]


_TERMS = {tuple(_words(name)): term for name, term in all_names().items()}
