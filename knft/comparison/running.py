"""The running knft as a source of ``knft explain``: its objects, the rules rendered from them, and its syncs.

All Services are read, because they decide who owns a frontend, and only the EndpointSlices that the explanation needs.
"""

import time
from collections.abc import Callable, Iterator
from functools import cache

from msgspec import Struct
from msgspec.structs import replace

from knft.comparison.captures import Rules
from knft.comparison.explained import cluster_of, kernel_rules, rendered_rules
from knft.comparison.kube_proxy_inputs import interface_addresses
from knft.comparison.rendered import render_with_addresses
from knft.control.object_reader import ObjectReader
from knft.control.objects import NodeObjects
from knft.errors import CaptureError, KernelError, UnsupportedError
from knft.explain.explain import explain
from knft.explain.explanation import Explanation
from knft.explain.pods import with_pods
from knft.explain.query import AddressQuery, Query
from knft.explain.related import ClaimIndex, related_services
from knft.explain.sentences import Sentence, Statement, state
from knft.explain.sources import KernelSource, NodeRules, ObjectSource
from knft.explain.unserved import has_endpoint
from knft.explain.words import listed, time_text
from knft.families import Family
from knft.model.names import NamespacedName
from knft.model.objects import EndpointSlice, KubeObject, Node, ObjectChange, Service
from knft.silence import without_log

MAX_READINGS = 3
"""How often objects and rules are read if they differ, and a change may come in force between the two readings."""
PAUSE_SECONDS = 0.5
_UNSETTLED = frozenset({"pending", "changed"})
"""The states of a family whose rules change soon."""
_SENTENCES = {
    "waiting": Sentence.NEVER_SYNCED,
    "pending": Sentence.SYNC_PENDING,
    "changed": Sentence.TABLE_CHANGED,
    "failing": Sentence.SYNC_FAILED,
    "left": Sentence.TABLE_LEFT,
}
_AGREES = frozenset({Sentence.KERNEL_EQUAL.kind, Sentence.KERNEL_HAS_NONE.kind})


class RunningObjects(Struct, frozen=True):
    """The objects of the running knft: all Services, and the EndpointSlices that an explanation needs.

    ``node`` is read last: what its syncs have brought in force then, they have for all these objects.
    """

    node: NodeObjects
    services: tuple[Service, ...]
    slices: tuple[EndpointSlice, ...]
    quarantined: dict[str, str]

    @property
    def is_settled(self) -> bool:
        """Whether no sync of these objects waits or runs."""
        return not any(family.state in _UNSETTLED for family in self.node.families.values())

    def is_same(self, other: "RunningObjects") -> bool:
        """Tell whether both have the same objects and settings, whatever the syncs do."""
        return _without_syncs(self) == _without_syncs(other)


def _without_syncs(objects: RunningObjects) -> RunningObjects:
    return replace(objects, node=replace(objects.node, families={}, unwatched_since={}))


def read_objects(query: Query, reader: ObjectReader, kernel: NodeRules | None) -> RunningObjects:
    """Return the objects that the explanation of a query needs, also to compare it with the kernel's rules."""
    services = reader.services()
    claims = ClaimIndex(services)
    names = related_services(query, claims, KernelSource("", kernel) if kernel is not None else None)
    if isinstance(query, AddressQuery) and not claims.has_frontend(query):
        names |= _services_of_endpoint(query, reader)
    found = [reader.slices(name) for name in sorted(names)]
    slices = tuple(item for each in found for item in each.slices)
    quarantined = {name: reason for each in found for name, reason in each.quarantined.items()}
    return RunningObjects(reader.node(), services, slices, quarantined)


def _services_of_endpoint(query: AddressQuery, reader: ObjectReader) -> set[NamespacedName]:
    """Return the Services with an endpoint in their EndpointSlices; all EndpointSlices of the family are read."""
    slices = reader.slices_with(query.family, lambda item: has_endpoint(item, query))
    return {NamespacedName(item.metadata.namespace, item.metadata.proxy_labels.service_name or "") for item in slices}


def running_source(objects: RunningObjects) -> ObjectSource:
    """Return the objects as a source, with the rules that knft makes from them."""
    node = objects.node
    items: tuple[KubeObject, ...] = (*node_object(node), *node.service_cidrs, *objects.services, *objects.slices)
    changes = tuple(ObjectChange(None, item) for item in items)
    with without_log():
        rendered = render_with_addresses(changes, node.config, node.local_addresses)
    rules = rendered_rules(rendered, node.config, _own_addresses(node))
    cluster = cluster_of(rendered.states, changes, knows_services=False)
    return ObjectSource(f"the running knft (pid {node.pid})", cluster, rules, tuple(running_warnings(node)))


def running_warnings(node: NodeObjects) -> Iterator[str]:
    """Yield why the objects of the running knft may be wrong or old."""
    if node.warning:
        yield node.warning
    times: dict[str, list[str]] = {}
    for name, seconds in sorted(node.unwatched_since.items(), key=lambda item: item[1]):
        times.setdefault(time_text(seconds), []).append(name)
    if times:
        resources = listed(f"{listed(names)} since {time}" for time, names in times.items())
        yield f"knft has not watched {resources}, so the objects may be old; knft status says why"


def node_object(node: NodeObjects) -> tuple[Node, ...]:
    """Return the Node of the running knft, if it has one."""
    return (node.node,) if node.node is not None else ()


def _own_addresses(node: NodeObjects) -> tuple[str, ...]:
    changes = tuple(ObjectChange(None, item) for item in node_object(node))
    return (*interface_addresses(changes, node.config), *node.local_addresses)


class RunningExplainer:
    """Explains from the objects of the running knft, and compares with the kernel's rules."""

    def __init__(
        self,
        reader: ObjectReader,
        read_rules: Callable[[], Rules] | None,
        *,
        add_entries: Callable[[Explanation, NodeRules], Explanation] = lambda found, _: found,
        requires_kernel: bool = False,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """``read_rules`` reads the kernel's rules, None to compare nothing; ``add_entries`` reads more of the kernel.

        If one raises CaptureError, KernelError or UnsupportedError, nothing is compared; with ``requires_kernel``, the
        error is raised. ``pause`` gets seconds.
        """
        self._reader, self._read_rules, self._requires_kernel = reader, read_rules, requires_kernel
        self._read_pods = cache(reader.pods)
        self._add_entries, self._pause = add_entries, pause

    def explain(self, query: Query) -> Explanation:
        """Explain a query; raise ControlError if the running knft does not answer."""
        if self._read_rules is None:
            return self._without_kernel(query)
        try:
            found, kernel = self._compared(query, self._read_rules)
            return self._add_entries(with_pods(found, self._read_pods), kernel)
        except (CaptureError, KernelError, UnsupportedError) as error:
            if self._requires_kernel:
                raise
            found = self._without_kernel(query)
            return replace(found, kernel=(state(Sentence.KERNEL_UNREAD, error=error),))

    def _without_kernel(self, query: Query) -> Explanation:
        return with_pods(_explained(query, read_objects(query, self._reader, None), None), self._read_pods)

    def _compared(
        self,
        query: Query,
        read_rules: Callable[[], Rules],
        readings: int = MAX_READINGS,
        previous: RunningObjects | None = None,
    ) -> tuple[Explanation, NodeRules]:
        """Explain a query; if the kernel differs, read both again, at most ``readings`` times in all.

        Return the kernel's rules, too.

        They do differ if the objects were in force before the kernel's rules were read, and are the same after that.
        """
        kernel = kernel_rules(read_rules(), _own_addresses(self._reader.node()))
        objects = read_objects(query, self._reader, kernel)
        found = _explained(query, objects, kernel)
        was_in_force = previous is not None and previous.is_settled and previous.is_same(objects)
        if _agrees(found) or was_in_force or readings == 1:
            return found, kernel
        self._pause(PAUSE_SECONDS)
        return self._compared(query, read_rules, readings - 1, objects)


def _explained(query: Query, objects: RunningObjects, kernel: NodeRules | None) -> Explanation:
    found = explain(query, running_source(objects), kernel)
    return replace(found, sync=() if _agrees(found) else tuple(_sync_statements(query, found, objects)))


def _agrees(found: Explanation) -> bool:
    return bool(found.kernel) and all(each.kind in _AGREES for each in found.kernel)


def _sync_statements(query: Query, found: Explanation, objects: RunningObjects) -> Iterator[Statement]:
    """Yield why the objects may not be in force in the families of the explained Service ports."""
    families = {port.family for port in found.ports} or {family.value for family in Family}
    if isinstance(query, AddressQuery):
        families = {query.family.value}
    for family, sync in objects.node.families.items():
        if family in families and sync.state in _SENTENCES:
            yield state(_SENTENCES[sync.state], family=family, error=sync.error)
    for port, reason in sorted(objects.quarantined.items()):
        if port in {each.port for each in found.ports}:
            yield state(Sentence.QUARANTINED, port=port, error=reason)
