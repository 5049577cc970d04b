"""What nft lists, as objects that can be taken away, changed and put elsewhere."""

import json
import re
from copy import deepcopy
from typing import Any

Object = dict[str, Any]

_OWNER = re.compile(r"-(shop)/([a-z]+)/[a-z]+/([a-z]+)")


class Listed:
    """One listing; every object may be changed in place."""

    def __init__(self, objects: list[Object]) -> None:
        """Work on a copy."""
        self.objects = deepcopy(objects)

    def document(self) -> bytes:
        """Return the listing as nft prints it."""
        return json.dumps({"nftables": self.objects}).encode()

    def rules(self, chain: str, has: str = "") -> list[Object]:
        """Return the rules of a chain, or of all whose names so begin, that match ``has`` as text."""
        return [
            item
            for item in self.objects
            if "rule" in item and _is_named(item["rule"]["chain"], chain) and re.search(has, json.dumps(item["rule"]))
        ]

    def base(self, name: str) -> Object:
        """Return a chain."""
        return next(item["chain"] for item in self.objects if item.get("chain", {}).get("name") == name)

    def container(self, name: str) -> Object:
        """Return a set or a map."""
        found = (item[kind] for item in self.objects for kind in ("set", "map") if kind in item)
        return next((item for item in found if item["name"] == name), {"elem": []})

    def elements(self, name: str) -> list[Any]:
        """Return a container's elements, to be changed in place."""
        found: list[Any] = self.container(name).setdefault("elem", [])
        return found

    def remove(self, *rules: Object) -> None:
        """Take rules away."""
        self.objects = [item for item in self.objects if not any(item is rule for rule in rules)]

    def insert(self, rule: Object, *steps: Object) -> Object:
        """Put a rule in front of one, in the same chain, and return it."""
        made = {"rule": {**rule["rule"], "handle": 9999, "expr": list(steps)}}
        made["rule"].pop("comment", None)
        at = next(number for number, item in enumerate(self.objects) if item is rule)
        self.objects.insert(at, made)
        return made

    def move_before(self, rule: Object, other: Object) -> None:
        """Put a rule in front of another."""
        self.remove(rule)
        at = next(number for number, item in enumerate(self.objects) if item is other)
        self.objects.insert(at, rule)

    def declare(self, chain: str, *like: Object) -> None:
        """Make a chain beside those there are."""
        model = next(item["chain"] for item in self.objects if "chain" in item and "hook" not in item["chain"])
        at = next(number for number, item in enumerate(self.objects) if "rule" in item)
        rules = [
            {"rule": {"family": model["family"], "table": model["table"], "chain": chain, "expr": expr["expr"]}}
            for expr in like
        ]
        self.objects[at:at] = [{"chain": {**model, "name": chain}}]
        self.objects += rules

    def chains(self, beginning: str) -> list[str]:
        """Return the chains whose names so begin."""
        return [
            item["chain"]["name"]
            for item in self.objects
            if item.get("chain", {}).get("name", "").startswith(beginning)
        ]

    @property
    def family(self) -> str:
        """The family, ``ip`` or ``ip6``."""
        return str(self.objects[1]["table"]["family"])


def _is_named(chain: str, pattern: str) -> bool:
    return chain.startswith(pattern[:-1]) if pattern.endswith("*") else chain == pattern


def owner(chain: str) -> str:
    """Return the Service port whose chain it is."""
    found = _OWNER.search(chain)
    assert found is not None, chain
    return f"{found[1]}/{found[2]}:{found[3]}"


def service(element: Any) -> str:
    """Return the Service port that a map's element is about."""
    return str(element[0]["elem"]["comment"])


def step(rule: Object, kind: str) -> Object:
    """Return the first step of a kind in a rule."""
    return next(item for item in rule["rule"]["expr"] if kind in item)
