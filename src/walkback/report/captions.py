"""The facts every caption states about its cards: network, data, training recipe, number of seeds, meaning of ±."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from walkback.core.settings import Spec
from walkback.report.sections import Card

_RECIPE_KEYS = {"data", "epochs", "batch", "lr", "weight_decay", "augment"}
"""Keys of a configuration that `recipe_of` needs."""
_MAX_NAMED = 2
"""More networks and data sets than this are counted instead of named, since each row of a table names its own."""


def caption_facts(cards: Sequence[Card]) -> str:
    """Network, data, recipe and n in one sentence; values that differ between cards are joined by "or"."""
    place = place_of(cards, lambda text: text.partition(":")[0])
    return f"{place}; {recipe_of(cards)}; {_seeds_of(cards)}."


def place_of(cards: Sequence[Card], shown: Callable[[str], str] = str) -> str:
    """Networks and data sets with all their settings; `shown` may shorten each name."""
    pairs = [(card["claim"]["arch"], _data(card)) for card in cards]
    places = list(dict.fromkeys(f"{shown(arch)} on {shown(data)}" for arch, data in pairs))
    return "; ".join(places) if len(places) <= _MAX_NAMED else f"{len(places)} networks and data sets"


def recipe_of(cards: Sequence[Card]) -> str:
    """The training recipe from the runs' configurations; a model of the user's own has the one that was described."""
    described = [described_recipe(card) for card in cards]
    if all(described):
        return " or ".join(dict.fromkeys(described))
    configs = [config for card in cards if (config := _config(card))]
    if len(configs) < len(cards):
        return "recipe not recorded" if not configs else f"recipe not recorded for {len(cards) - len(configs)} cards"

    def each(name: str, spec: str = "") -> str:
        return " or ".join(dict.fromkeys(format(config[name], spec) for config in configs))

    def named(text: Callable[[Mapping[str, Any]], str]) -> str:
        return " or ".join(dict.fromkeys(map(text, configs)))

    augment = each("augment")
    words = f"{each('epochs')} epochs, batch {each('batch')}, {named(optimiser_text)} lr {each('lr', 'g')}"
    words += f", decay {each('weight_decay', 'g')}, {named(schedule_text)}"
    return words if augment == "none" else f"{words}, augmentation {augment}"


def optimiser_text(config: Mapping[str, Any]) -> str:
    """The optimiser of a configuration as written in text; configurations leave the default one out."""
    found = _spec(config.get("optimizer", {"name": "adamw"}))
    names = {"adamw": "AdamW", "adam": "Adam", "sgd": "SGD"}
    settings = ", ".join(f"{key} {value}".lower() for key, value in found.settings.items())
    return names.get(found.name, found.name) + (f" ({settings})" if settings else "")


def schedule_text(config: Mapping[str, Any]) -> str:
    """The schedule of a configuration, likewise."""
    found = _spec(config.get("schedule", {"name": "cosine"}))
    return str(Spec(found.name, {key: value for key, value in found.settings.items() if value is not None}))


def _spec(stored: Mapping[str, Any]) -> Spec:
    """A name with its settings, as a configuration stores it."""
    return Spec(stored["name"], {key: value for key, value in stored.items() if key != "name"})


def described_recipe(card: Card) -> str:
    """The recipe that the user described; empty without one."""
    return str((card["provenance"].get("described") or {}).get("recipe", ""))


def _seeds_of(cards: Sequence[Card]) -> str:
    """The number of networks measured of each method, their seeds where the cards name them, and ddof."""
    methods = Counter((card["claim"]["method"], card["claim"]["arch"], card["claim"]["data"]) for card in cards)
    named = sorted({card["claim"]["seed"] for card in cards if card["claim"]["seed"] is not None})
    counts = sorted(set(methods.values()))
    n = " or ".join(map(str, counts))
    which = f"n = {n} {'seed' if counts == [1] else 'seeds'} ({', '.join(map(str, named))})" if named else f"n = {n}"
    spread = "; ± is the standard deviation over seeds, ddof = 1" if counts[-1] > 1 else ", so no ±"
    return f"{which} measured of each method{spread}"


def _config(card: Card) -> Mapping[str, Any] | None:
    """The run's configuration, or None where it lacks a key of the recipe."""
    found = card["provenance"].get("config")
    return found if isinstance(found, Mapping) and set(found) >= _RECIPE_KEYS else None


def _data(card: Card) -> str:
    config = _config(card)
    if config is None:
        return str(card["claim"]["data"])
    return str(_spec(config["data"]))
