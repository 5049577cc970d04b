"""The names of nodes in manifests, and warnings of a ``--node`` that is probably misspelt."""

from collections.abc import Iterable, Iterator

from knft.config import Config
from knft.decide.node_problems import missing_node_problem, unknown_name_problem
from knft.model.objects import EndpointSlice, KubeObject, Node, ObjectChange


def node_names(changes: Iterable[ObjectChange]) -> list[str]:
    """Return the names of all nodes: those of Node objects first, then those that only endpoints name."""
    objects = [change.current for change in changes]
    nodes = _node_objects(objects)
    return [*sorted(nodes), *sorted(_nodes_of_endpoints(objects) - nodes)]


def has_node(config: Config, changes: Iterable[ObjectChange]) -> bool:
    """Return whether there is a Node object of the node."""
    return config.node_name in _node_objects(change.current for change in changes)


def node_warnings(config: Config, changes: Iterable[ObjectChange]) -> Iterator[str]:
    """Yield whether the node's name is probably wrong: its endpoints then count as endpoints of other nodes."""
    objects = [change.current for change in changes]
    names = _node_objects(objects)
    if config.node_name in names:
        return
    used = _nodes_of_endpoints(objects)
    warning = missing_node_problem(config.node_name, names) or unknown_name_problem(config.node_name, used)
    if warning:
        yield warning


def _node_objects(objects: Iterable[KubeObject | None]) -> frozenset[str]:
    return frozenset(item.metadata.name for item in objects if isinstance(item, Node))


def _nodes_of_endpoints(objects: Iterable[KubeObject | None]) -> frozenset[str]:
    endpoints = (endpoint for item in objects if isinstance(item, EndpointSlice) for endpoint in item.endpoints or ())
    return frozenset(endpoint.node_name for endpoint in endpoints if endpoint.node_name)
