"""What rules write: which sets remember what rules put into them, and whose content nobody can know."""

import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from knft.interpret.nftables.containers import Written, numbers_only
from knft.interpret.nftables.document import ListedRule, TableId
from knft.interpret.nftables.problems import Malformed, Uninterpreted
from knft.interpret.nftables.selectors import read_key
from knft.interpret.nftables.statements import remembered_key
from knft.interpret.rules import IpVersion

# What libnftables 1.0.x has no JSON for, it lists as text.
_AS_TEXT = re.compile(r"\s*(?:add|update|delete) @(\S+) ")


def written(rules: Iterable[ListedRule], version: IpVersion) -> dict[TableId, Written]:
    """Return by table what its rules do to containers."""
    remembering: dict[TableId, set[str]] = defaultdict(set)
    blurred: dict[TableId, set[str]] = defaultdict(set)
    for rule in rules:
        for statement in rule.expr:
            table = (rule.family, rule.table)
            if (name := _remembers(statement, version)) is not None:
                remembering[table].add(name)
            elif (name := _blurs(statement)) is not None:
                blurred[table].add(name)
    tables = remembering.keys() | blurred.keys()
    return {table: Written(frozenset(remembering[table]), frozenset(blurred[table])) for table in tables}


def _remembers(statement: Any, version: IpVersion) -> str | None:
    """Return the name of a set that a rule puts a key of numbers into."""
    match statement:
        case {"set": {"op": "add" | "update", "elem": element, "set": str(name)}}:
            try:
                numbers_only(read_key(remembered_key(element)[0], version))
            except (Malformed, Uninterpreted):
                return None
            return name.removeprefix("@")
    return None


def _blurs(statement: Any) -> str | None:
    """Return the name of a container that a rule changes in another way."""
    match statement:
        case {"set": {"set": str(name)}} | {"map": {"map": str(name)}}:
            return name.removeprefix("@")
        case str() if found := _AS_TEXT.match(statement):
            return found[1]
    return None
