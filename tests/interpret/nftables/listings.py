"""Creates captures with nft: loads rules as text in a network namespace and lists them as JSON."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from knft.interpret.rules import RuleSet, Unknown
from tests.support.lab.namespace import Namespace


@contextmanager
def fresh_namespace() -> Iterator[Namespace]:
    """Yield a namespace without rules."""
    namespace = Namespace.create("captures")
    try:
        yield namespace
    finally:
        namespace.close()


def listed(namespace: Namespace, text: str) -> str:
    """Replace all rules by the given ones, and return the listing of nft."""
    namespace.run(["nft", "-f", "-"], stdin=f"flush ruleset\n{text}")
    return namespace.run(["nft", "-j", "list", "ruleset"]).stdout


def document(*objects: dict[str, Any]) -> str:
    """Return a listing that contains the objects."""
    return json.dumps({"nftables": [{"metainfo": {"version": "1.1.3", "json_schema_version": 1}}, *objects]})


def rule(*statements: Any, table: str = "t", family: str = "ip") -> str:
    """Return a listing of one rule, in a form that the installed version of nft may not produce."""
    of = {"family": family, "table": table}
    return document(
        {"table": {"family": family, "name": table, "handle": 1}},
        {"chain": {**of, "name": "c", "handle": 1}},
        {"chain": {**of, "name": "other", "handle": 3}},
        {"rule": {**of, "chain": "c", "handle": 2, "expr": list(statements)}},
    )


def unknown(rules: RuleSet) -> list[str]:
    """Return the text of the rules that are not interpreted."""
    found = (rule for chain in rules.chains.values() for rule in chain.rules)
    return [rule.text for rule in found if any(isinstance(step, Unknown) for step in rule.steps)]
