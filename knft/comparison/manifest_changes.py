"""What a change of manifests does to packets: compares knft's rules for both on each node."""

from collections.abc import Iterable, Iterator

from msgspec.structs import replace

from knft.comparison.compare import compare
from knft.comparison.services import only_services, service_of
from knft.comparison.sides import KnftInput, Sides
from knft.config import Config
from knft.explain.related import ClaimIndex
from knft.interpret.compare.report import DifferenceGroup
from knft.interpret.ranges import ranges
from knft.lint.report import TrafficChange
from knft.model.objects import KubeObject, Node, ObjectChange, Service, ServiceCIDR

Changes = tuple[ObjectChange, ...]


def traffic_changes(
    before: Changes, after: Changes, configs: Iterable[Config], local_addresses: tuple[str, ...] = ()
) -> tuple[TrafficChange, ...]:
    """Return the packets that the rules for ``before`` and for ``after`` treat differently, sorted.

    ``configs`` are the settings of the nodes, which have ``local_addresses`` besides those of their Nodes. Differences
    that are the same in both families, or on several nodes, become one; its example is for the first family and node.
    """
    by_change: dict[TrafficChange, dict[str, dict[str, None]]] = {}
    examples: dict[tuple[TrafficChange, str], DifferenceGroup] = {}
    for config in configs:
        inputs = (KnftInput(changes, config, local_addresses) for changes in (before, after))
        for family, group in _differences(*inputs):
            change = _change(group)
            examples.setdefault((change, family), group)
            by_change.setdefault(change, {}).setdefault(family, {})[config.node_name] = None
    found: list[TrafficChange] = []
    for change, families in by_change.items():
        alike: dict[tuple[str, ...], list[str]] = {}
        for family, nodes in families.items():
            alike.setdefault(tuple(nodes), []).append(family)
        found += [_with(change, examples[change, listed[0]], tuple(listed), nodes) for nodes, listed in alike.items()]
    return tuple(sorted(found, key=_position))


def affected_objects(changed: Iterable[KubeObject], before: Changes, after: Changes) -> tuple[Changes, Changes]:
    """Return both sides without the Services whose packets ``changed`` objects cannot affect.

    What is left are the changed Services, those of changed EndpointSlices, and those that claim their frontends.
    """
    changed = tuple(changed)
    if any(isinstance(item, Node | ServiceCIDR) for item in changed):
        return before, after
    services = (change.current for change in (*before, *after) if isinstance(change.current, Service))
    # An EndpointSlice may have belonged to another Service.
    keys = {(type(item), item.key) for item in changed}
    earlier = (item.current for item in before if item.current and (type(item.current), item.current.key) in keys)
    names = {name for item in (*changed, *earlier) if (name := service_of(item)) is not None}
    names |= ClaimIndex(services).claimants(names, ())
    return only_services(before, names), only_services(after, names)


def _position(change: TrafficChange) -> tuple[object, ...]:
    """Return the sort key of a change: those of no Service last, and losses of a Service port first."""
    details = (-len(change.nodes), change.before, change.after, change.description, change.nodes)
    return (not change.service, change.service, change.families, not change.is_loss, *details)


def _differences(before: KnftInput, after: KnftInput) -> Iterator[tuple[str, DifferenceGroup]]:
    """Yield the differences on one node, with their families."""
    addresses = {
        version: ranges((*listed, *after.node_addresses()[version]))
        for version, listed in before.node_addresses().items()
    }
    sides = Sides(
        mode=None, left_name="before", left=before.rules(), right=after.rules(), right_name="after",
        node_addresses=addresses, labels=("before", "after"),
    )  # fmt: skip
    for report in compare(sides).families:
        for group in report.groups:
            yield report.family, group


def _change(group: DifferenceGroup) -> TrafficChange:
    return TrafficChange(
        service=group.service,
        families=(),
        nodes=(),
        description=group.description,
        before=group.left_outcome,
        after=group.right_outcome,
        is_loss=group.is_loss,
        example="",
    )


def _with(
    change: TrafficChange, group: DifferenceGroup, families: tuple[str, ...], nodes: tuple[str, ...]
) -> TrafficChange:
    example = next(iter(group.examples), None)
    trace = "" if example is None else example.trace_command
    return replace(change, families=families, nodes=nodes, example=trace)
