"""Short names of the methods of one table: `dfa, unit error` for `dfa:scale=unit_error,site=input`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence


def short_names(methods: Sequence[str]) -> list[str]:
    """A short name for each method, without the settings that all of them but backprop share; where two methods would
    have the same name, both keep their full ones."""
    settings = {method: _settings(method) for method in methods}
    kept = [found for method, found in settings.items() if found is not None and method != "bp"]
    shared = set.intersection(*map(set, kept)) if len(kept) > 1 else set()
    names = [_short(method, settings[method], shared) for method in methods]
    counts = Counter(names)
    return [name if counts[name] == 1 else method for name, method in zip(names, methods, strict=True)]


def shared_settings(methods: Sequence[str]) -> list[str]:
    """The settings that short names leave out, as `key=value`, in the order in which a method has them."""
    settings = {method: _settings(method) or [] for method in methods}
    names = dict(zip(methods, short_names(methods), strict=True))
    left_out = {
        pair
        for method, pairs in settings.items()
        for pair in pairs
        if names[method] != method and _words(pair) not in names[method].split(", ")
    }
    return [pair for pair in dict.fromkeys(pair for pairs in settings.values() for pair in pairs) if pair in left_out]


def _settings(method: str) -> list[str] | None:
    """The settings of `name:key=value,key=value`; None for a name of a user's own that is not written like that."""
    name, colon, rest = method.partition(":")
    pairs = rest.split(",") if colon else []
    if not name or any(not all(pair.partition("=")) for pair in pairs):
        return None
    return pairs


def _short(method: str, pairs: list[str] | None, shared: set[str]) -> str:
    if pairs is None:
        return method
    return ", ".join([method.partition(":")[0], *(_words(pair) for pair in pairs if pair not in shared)])


def _words(pair: str) -> str:
    """A setting as words: a value of several words says what it sets, another one needs its key."""
    key, _, value = pair.partition("=")
    return (value if "_" in value else f"{key} {value}").replace("_", " ")
