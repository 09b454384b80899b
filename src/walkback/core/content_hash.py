"""Content hashes: a sha256 that a file stores of everything else it holds, so that a changed file is refused.

A hash shows damage and careless changes; whoever knows how can compute it again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

SHA256 = "sha256"
"""The key of a content hash, in a JSON document or in the facts beside arrays."""


def document_hash(document: Mapping[str, Any]) -> str:
    """sha256 of the document's canonical JSON without the hash itself."""
    return hashlib.sha256(_canonical(_without_hash(document))).hexdigest()


def with_hash(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document with its content hash."""
    return {**document, SHA256: document_hash(document)}


def arrays_hash(arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> str:
    """sha256 of the facts without the hash itself, and of every array's name, dtype, shape and bytes."""
    found = hashlib.sha256(_canonical(_without_hash(facts)))
    for name in sorted(arrays):
        array = arrays[name]
        found.update(_canonical([name, array.dtype.str, array.shape]))
        found.update(np.ascontiguousarray(array).view(np.uint8).data if array.size else b"")
    return found.hexdigest()


def _without_hash(document: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in document.items() if key != SHA256}


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
