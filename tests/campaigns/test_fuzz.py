"""Any bytes and any text: what parses them gives a value or an `InputError`, and nothing else.

The long run has more examples: `make test-all`.
"""

from __future__ import annotations

import io
import json
from contextlib import suppress

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from walkback.core.configuration import parse_arch
from walkback.core.errors import InputError
from walkback.core.load_named import load_named
from walkback.core.reading.array_files import parse_npy, parse_safetensors
from walkback.core.reading.json_text import parse_json
from walkback.core.reading.schema import check_schema
from walkback.core.reading.yaml_text import parse_yaml
from walkback.core.settings import Spec
from walkback.runs.stored_plan import _PLAN
from walkback.sweeping.grid_file import parse_grid

QUICK, LONG = 60, 40_000
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=12,
)
WORDS = st.sampled_from(
    [
        "methods",
        "arch",
        "data",
        "seeds",
        "epochs",
        "settings",
        "baselines",
        "lr",
        "bp",
        "resmlp",
        "d=4",
        ":",
        ",",
        "=",
        "[",
        "]",
        "{",
        "}",
        "&",
        "*",
        "!",
        "-",
        "1e999",
    ]
)
GRAMMAR = st.lists(WORDS | st.text(max_size=3), max_size=14).map("".join) | st.lists(WORDS, max_size=14).map(" ".join)


def npy(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


def spoiled(data):
    """The data with some bytes replaced, removed and added."""
    edits = st.lists(st.tuples(st.integers(0, len(data)), st.binary(max_size=4), st.integers(0, 4)), max_size=4)

    def apply(given):
        found = data
        for at, new, gone in given:
            found = found[:at] + new + found[at + gone :]
        return found

    return edits.map(apply)


NPY, TENSORS = npy(np.ones((3, 2))), safetensors.numpy.save({"w": np.ones((3, 2), np.float32)}, metadata={"a": "b"})
PARSERS = {
    "json": (st.binary(max_size=60) | JSON.map(json.dumps) | spoiled(b'{"a": [1, 2.5, "x"], "b": {}}'), parse_json),
    "yaml": (st.text(max_size=60) | GRAMMAR, parse_yaml),
    "npy": (st.binary(max_size=99) | spoiled(NPY), parse_npy),
    "safetensors": (st.binary(max_size=99) | spoiled(TENSORS), parse_safetensors),
    "grid": (GRAMMAR | JSON.map(json.dumps), lambda text, _: parse_grid(text)),
    "method": (st.text(max_size=30) | GRAMMAR, lambda text, _: Spec.parse(text)),
    "network": (st.text(max_size=30) | GRAMMAR, lambda text, _: parse_arch(text)),
    "module": (st.text(max_size=20).map("wb_none_such{}:f".format), lambda text, _: load_named(text, "--model")),
    "plan": (JSON, lambda value, fault: check_schema(value, _PLAN, fault)),
}


@pytest.mark.parametrize("examples", [QUICK, pytest.param(LONG, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", PARSERS)
def test_nothing_but_an_input_error(kind, examples):
    strategy, parse = PARSERS[kind]

    @settings(
        max_examples=examples, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck)
    )
    @given(strategy)
    def check(text):
        with suppress(InputError):
            parse(text, InputError)

    check()
