"""An editable listing of nft."""

import json
import re
from copy import deepcopy
from typing import Any

Object = dict[str, Any]

_OWNER = re.compile(r"-(shop)/([a-z]+)/[a-z]+/([a-z]+)")


class NftListing:
    """A listing; all objects may be changed in place."""

    def __init__(self, objects: list[Object]) -> None:
        """Copy the objects."""
        self.objects = deepcopy(objects)

    def document(self) -> bytes:
        """Return the listing in the form of ``nft -j list ruleset``."""
        return json.dumps({"nftables": self.objects}).encode()

    def rules(self, chain: str, has: str = "") -> list[Object]:
        """Return the rules of a chain, or of a prefix with ``*``, whose JSON matches ``has``."""
        return [
            item
            for item in self.objects
            if "rule" in item
            and _chain_matches(item["rule"]["chain"], chain)
            and re.search(has, json.dumps(item["rule"]))
        ]

    def base(self, name: str) -> Object:
        """Return a chain."""
        return next(item["chain"] for item in self.objects if item.get("chain", {}).get("name") == name)

    def container(self, name: str) -> Object:
        """Return a set or a map."""
        found = (item[kind] for item in self.objects for kind in ("set", "map") if kind in item)
        return next((item for item in found if item["name"] == name), {"elem": []})

    def elements(self, name: str) -> list[Any]:
        """Return the elements of a set or map, to be changed in place."""
        found: list[Any] = self.container(name).setdefault("elem", [])
        return found

    def remove(self, *rules: Object) -> None:
        """Remove rules."""
        self.objects = [item for item in self.objects if not any(item is rule for rule in rules)]

    def insert(self, rule: Object, *steps: Object) -> Object:
        """Insert a rule before another in the same chain, and return it."""
        new = {"rule": {**rule["rule"], "handle": 9999, "expr": list(steps)}}
        new["rule"].pop("comment", None)
        at = next(number for number, item in enumerate(self.objects) if item is rule)
        self.objects.insert(at, new)
        return new

    def move_before(self, rule: Object, other: Object) -> None:
        """Move a rule before another."""
        self.remove(rule)
        at = next(number for number, item in enumerate(self.objects) if item is other)
        self.objects.insert(at, rule)

    def declare(self, chain: str, *like: Object) -> None:
        """Add a chain with the statements of some rules."""
        model = next(item["chain"] for item in self.objects if "chain" in item and "hook" not in item["chain"])
        at = next(number for number, item in enumerate(self.objects) if "rule" in item)
        rules = [
            {"rule": {"family": model["family"], "table": model["table"], "chain": chain, "expr": expr["expr"]}}
            for expr in like
        ]
        self.objects[at:at] = [{"chain": {**model, "name": chain}}]
        self.objects += rules

    def chains(self, beginning: str) -> list[str]:
        """Return the chains whose names have a prefix."""
        return [
            item["chain"]["name"]
            for item in self.objects
            if item.get("chain", {}).get("name", "").startswith(beginning)
        ]

    @property
    def family(self) -> str:
        """The family, ``ip`` or ``ip6``."""
        return str(self.objects[1]["table"]["family"])


def _chain_matches(chain: str, pattern: str) -> bool:
    return chain.startswith(pattern[:-1]) if pattern.endswith("*") else chain == pattern


def service_of_chain(chain: str) -> str:
    """Return the Service port of a chain."""
    found = _OWNER.search(chain)
    assert found is not None, chain
    return f"{found[1]}/{found[2]}:{found[3]}"


def key_of(element: Any) -> list[Any]:
    """Return the concatenated key of a map element, with or without a comment."""
    key = element[0].get("elem", {"val": element[0]})["val"]
    concatenated: list[Any] = key["concat"]
    return concatenated


def service_of_element(element: Any) -> str:
    """Return the Service port of a map element: its comment says it, or the chain of its verdict."""
    if "elem" in element[0]:
        return str(element[0]["elem"]["comment"])
    return service_of_chain(element[1]["goto"]["target"])


def find_statement(rule: Object, kind: str) -> Object:
    """Return the first statement of a kind in a rule."""
    return next(item for item in rule["rule"]["expr"] if kind in item)
