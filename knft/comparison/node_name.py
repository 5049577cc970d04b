"""Warns of a ``--node`` that is probably misspelt."""

from collections.abc import Iterable, Iterator

from knft.config import Config
from knft.decide.node_problems import missing_node_problem, unknown_name_problem
from knft.model.objects import EndpointSlice, Node, ObjectChange


def node_warnings(config: Config, changes: Iterable[ObjectChange]) -> Iterator[str]:
    """Yield whether the node's name is probably wrong: its endpoints then count as endpoints of other nodes."""
    objects = [change.current for change in changes]
    names = {item.metadata.name for item in objects if isinstance(item, Node)}
    if config.node_name in names:
        return
    endpoints = (endpoint for item in objects if isinstance(item, EndpointSlice) for endpoint in item.endpoints or ())
    used = {endpoint.node_name for endpoint in endpoints if endpoint.node_name}
    warning = missing_node_problem(config.node_name, names) or unknown_name_problem(config.node_name, used)
    if warning:
        yield warning
