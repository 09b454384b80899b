"""Read YAML: plain data only, without aliases, which can expand to any size."""

from __future__ import annotations

from typing import Any

import yaml

from walkback.core.reading.regular_files import MIB, Fault

YAML_BYTES = MIB
MAX_DEPTH_OF_YAML = 20


def parse_yaml(text: str, fault: Fault) -> Any:
    """The value of a YAML text."""
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise fault(f"is not YAML: {' '.join(str(error).split())}") from error
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        # Dates that do not exist, `!!bool maybe`, numbers of thousands of digits.
        reason = f"{type(error).__name__}: {error}" if isinstance(error, KeyError) else str(error)
        raise fault(f"has a value that cannot be read ({reason})") from error


class _Loader(yaml.SafeLoader):  # type: ignore[misc]
    """Loads plain data only; refuses a key given twice, of which YAML would silently use the second."""

    _level = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError(f"it has the alias '*{self.peek_event().anchor}'; write the value out")
        self._level += 1
        if self._level > MAX_DEPTH_OF_YAML:
            raise yaml.YAMLError(f"its brackets or indents are nested more than {MAX_DEPTH_OF_YAML} deep")
        found = super().compose_node(parent, index)
        self._level -= 1
        return found

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise yaml.YAMLError(f"the key '{twice}' is given twice; give it once, with a list")
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found
