"""Finds the sets and maps that rules write: dynamic sets, and those whose content is unknown to knft."""

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from knft.errors import CaptureError
from knft.families import IpVersion
from knft.interpret.errors import NotInterpretedError
from knft.interpret.nftables.listing import ListedRule, TableId
from knft.interpret.nftables.selectors import read_key
from knft.interpret.nftables.sets_and_maps import RuleWrites, numeric_key
from knft.interpret.nftables.statements import updated_key

# libnftables 1.0.x lists statements for which it has no JSON as text.
_TEXT_STATEMENT = re.compile(r"\s*(?:add|update|delete) @(\S+) ")


def find_rule_writes(rules: Iterable[ListedRule], version: IpVersion) -> dict[TableId, RuleWrites]:
    """Return what the rules of each table do to its sets and maps."""
    dynamic: dict[TableId, set[str]] = defaultdict(set)
    unknown: dict[TableId, set[str]] = defaultdict(set)
    for rule in rules:
        for statement in rule.expr:
            table = (rule.family, rule.table)
            if (name := _dynamic_set(statement, version)) is not None:
                dynamic[table].add(name)
            elif (name := _written_container(statement)) is not None:
                unknown[table].add(name)
    tables = dynamic.keys() | unknown.keys()
    return {table: RuleWrites(frozenset(dynamic[table]), frozenset(unknown[table])) for table in tables}


def _dynamic_set(statement: Any, version: IpVersion) -> str | None:
    """Return the name of the set to which a statement adds a key of numbers."""
    match statement:
        case {"set": {"op": "add" | "update", "elem": element, "set": str(name)}}:
            try:
                numeric_key(read_key(updated_key(element)[0], version))
            except (CaptureError, NotInterpretedError):
                return None
            return name.removeprefix("@")
    return None


def _written_container(statement: Any) -> str | None:
    """Return the name of the set or map that any other statement writes."""
    match statement:
        case {"set": {"set": str(name)}} | {"map": {"map": str(name)}}:
            return name.removeprefix("@")
        case str() if found := _TEXT_STATEMENT.match(statement):
            return found[1]
    return None
