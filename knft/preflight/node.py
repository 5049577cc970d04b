"""Checks whether the node's name and addresses fit the objects and the machine."""

from collections.abc import Iterator

from knft.preflight.facts import ObjectFacts, Unread
from knft.preflight.report import Finding, not_checked


def check_node(found: ObjectFacts | Unread, name: str) -> Iterator[Finding]:
    """Yield the problems of the node's settings."""
    if isinstance(found, Unread):
        yield not_checked("node", found)
        return
    remedy = "correct the node's name or addresses (--node, --node-ip): the comparison depends on them, and so do rules"
    yield from (Finding("warning", problem, remedy) for problem in found.node_problems)
    if not found.has_node:
        unknown = "its zone, its pod CIDRs and, without --node-ip, its addresses"
        text = f"the objects have no Node {name!r}, so the comparison does not know {unknown}"
        yield Finding("not checked", text, "add the Node to the objects, or correct the node's name (--node)")
    elif not found.node_problems:
        yield Finding("ok", "the node's name and addresses fit the objects and this machine")
