"""YAML texts of tests, by libyaml where PyYAML has it: PyYAML's own parser and emitter take five times as long."""

from collections.abc import Iterable, Iterator
from typing import Any

import yaml

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


def load_all(text: str) -> Iterator[Any]:
    """Yield the documents of a text."""
    yield from yaml.load_all(text, _Loader)


def dump_all(documents: Iterable[Any], *, default_flow_style: bool | None = False) -> str:
    """Return documents as text."""
    return str(yaml.dump_all(documents, Dumper=_Dumper, default_flow_style=default_flow_style))
