"""What `job.epochs` stores: anything with `state_dict` and `load_state_dict`, and random number generators."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from walkback.auditing.own_loop.random_states import random_states, set_random_states
from walkback.auditing.own_loop.state_arrays import state_from_arrays, state_to_arrays
from walkback.core.errors import InputError
from walkback.runs.store import Arrays


def require_stateful(objects: Sequence[Any]) -> None:
    """Refuse what cannot be stored, before an epoch is trained."""
    for index, each in enumerate(objects):
        if _access(each) is None:
            raise InputError(
                f"job.epochs got a {type(each).__name__} as its argument {index + 2}; expected a model, an optimiser, "
                "a scheduler or anything else with state_dict and load_state_dict, or a random number generator."
            )


def stored_state(objects: Sequence[Any]) -> tuple[Any, Arrays]:
    """The skeleton and the arrays of these objects' states and of the global random number generators."""
    skeletons, arrays = [], Arrays()
    for index, each in enumerate(objects):
        access, kind = _access(each), type(each).__name__
        assert access is not None
        skeleton, own = state_to_arrays(access[0](), f"the state of the {kind} given to job.epochs", f"{index}/")
        skeletons.append({"type": kind, "state": skeleton})
        arrays |= own
    streams, own = state_to_arrays(random_states(), "the random number generators", "random/")
    return {"objects": skeletons, "random": streams}, arrays | own


def restore_state(objects: Sequence[Any], skeleton: Any, arrays: Arrays, where: str) -> None:
    """Put stored states back into these objects, in the same order; refused if they are of other types."""
    stored = skeleton["objects"]
    got, expected = [type(each).__name__ for each in objects], [each["type"] for each in stored]
    if got != expected:
        raise InputError(
            f"{where} has the states of {', '.join(expected) or 'nothing'}; job.epochs now got "
            f"{', '.join(got) or 'nothing'}. Give the same objects in the same order, or move that folder away."
        )
    for each, state in zip(objects, stored, strict=True):
        access = _access(each)
        assert access is not None
        try:
            access[1](state_from_arrays(state["state"], arrays))
        except (RuntimeError, ValueError, KeyError, TypeError) as error:
            raise InputError(
                f"{where} does not fit the {state['type']} given to job.epochs: {str(error).strip()} Restore the code "
                "that wrote it, or move that folder away."
            ) from error
    set_random_states(state_from_arrays(skeleton["random"], arrays))


def _access(each: Any) -> tuple[Callable[[], Any], Callable[[Any], Any]] | None:
    """The functions that take an object's state and put it back; None if it has no state that can be stored."""
    if isinstance(each, torch.Generator):
        return each.get_state, each.set_state
    if isinstance(each, random.Random):
        return each.getstate, each.setstate
    if isinstance(each, np.random.Generator | np.random.RandomState):
        bits = each.bit_generator if isinstance(each, np.random.Generator) else each._bit_generator
        return lambda: bits.state, lambda state: setattr(bits, "state", state)
    if callable(getattr(each, "state_dict", None)) and callable(getattr(each, "load_state_dict", None)):
        return each.state_dict, each.load_state_dict
    return None
