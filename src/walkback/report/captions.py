"""What every caption states of the cards it speaks of: network, data, recipe, how many seeds, and what ± is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from walkback.core.settings import Spec
from walkback.report.sections import Card

NEEDED = {"data", "epochs", "batch", "lr", "weight_decay", "augment"}
"""What a recipe is told from."""
_MOST = 2
"""More networks or data sets than this are counted, not named: each row names its own."""


def stated(cards: Sequence[Card]) -> str:
    """Network, data, recipe and n in one sentence; what differs between cards is joined by "or"."""
    place = place_of(cards, lambda text: text.partition(":")[0])
    return f"{place}; {recipe_of(cards)}; {_seeds_of(cards)}."


def place_of(cards: Sequence[Card], shown: Callable[[str], str] = str) -> str:
    """Networks and data sets with all their settings, or as `shown` says them."""
    pairs = [(card["claim"]["arch"], _data(card)) for card in cards]
    places = list(dict.fromkeys(f"{shown(arch)} on {shown(data)}" for arch, data in pairs))
    return "; ".join(places) if len(places) <= _MOST else f"{len(places)} networks and data sets"


def recipe_of(cards: Sequence[Card]) -> str:
    """As the runs' configurations have it; a model that was handed over brings none."""
    found = [config for card in cards if (config := _config(card))]
    if len(found) < len(cards):
        return "recipe not recorded" if not found else f"recipe not recorded for {len(cards) - len(found)} cards"

    def each(name: str, spec: str = "") -> str:
        return " or ".join(dict.fromkeys(format(config[name], spec) for config in found))

    augment = each("augment")
    words = f"{each('epochs')} epochs, batch {each('batch')}, AdamW lr {each('lr', 'g')}"
    words += f", decay {each('weight_decay', 'g')}, cosine"
    return words if augment == "none" else f"{words}, augmentation {augment}"


def _seeds_of(cards: Sequence[Card]) -> str:
    """How many networks of each method were measured, which seeds where the cards name them, and ddof."""
    methods = Counter((card["claim"]["method"], card["claim"]["arch"], card["claim"]["data"]) for card in cards)
    named = sorted({card["claim"]["seed"] for card in cards if card["claim"]["seed"] is not None})
    counts = sorted(set(methods.values()))
    n = " or ".join(map(str, counts))
    which = f"n = {n} {'seed' if counts == [1] else 'seeds'} ({', '.join(map(str, named))})" if named else f"n = {n}"
    spread = "; ± is the standard deviation over seeds, ddof = 1" if counts[-1] > 1 else ", so no ±"
    return f"{which} measured of each method{spread}"


def _config(card: Card) -> Mapping[str, Any] | None:
    """The run's configuration, where it is a whole one."""
    found = card["provenance"].get("config")
    return found if isinstance(found, Mapping) and set(found) >= NEEDED else None


def _data(card: Card) -> str:
    config = _config(card)
    if config is None:
        return str(card["claim"]["data"])
    return str(Spec(config["data"]["name"], {key: value for key, value in config["data"].items() if key != "name"}))
