"""A repr that is equal in every process, for names of parametrised tests: workers must collect equal names."""

import re

_SET = re.compile(r"frozenset\(\{(.*?)\}\)")


def stable_repr(value: object) -> str:
    """Return ``repr(value)`` with the elements of frozensets sorted: their order depends on the hash seed."""
    return _SET.sub(lambda match: "{" + ", ".join(sorted(match[1].split(", "))) + "}", repr(value))
