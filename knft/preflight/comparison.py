"""Checks the comparison of the kernel's rules with knft's, as ``knft diff --live`` makes it."""

from collections.abc import Iterable, Iterator

from knft.interpret.compare.report import DifferenceGroup, Report
from knft.preflight.facts import Unread
from knft.preflight.report import Finding, not_checked

_MAX_NAMED = 5
_CLUSTER_CIDR = (
    "the likely cause is that no --cluster-cidr is given, so packets from pods count as packets from outside: give the "
    "value of kube-proxy's clusterCIDR, or its configuration file with --config"
)


def check_comparison(found: Report | Unread, command: str, *, lacks_cluster_cidr: bool) -> Iterator[Finding]:
    """Yield how many Services have packets with other outcomes; ``command`` prints the differences.

    ``lacks_cluster_cidr`` tells that --cluster-cidr was probably forgotten, which explains most differences.
    """
    if isinstance(found, Unread):
        yield not_checked("comparison", found)
        return
    groups = [group for family in found.families for group in family.groups]
    unexpected = [group for group in groups if group.reason is None and group.cause != "undecided"]
    undecided = [group for group in groups if group.cause == "undecided"]
    expected = sum(group.classes for group in groups if group.reason is not None)
    losing = [group for group in groups if group.reason is not None and group.is_loss]
    if unexpected:
        text = f"{_services(unexpected)} have other outcomes with knft than with the rules in the kernel"
        cause = f"{_CLUSTER_CIDR}; " if lacks_cluster_cidr else ""
        yield Finding("problem", text, f"{cause}`{command}` prints the differences")
    if undecided:
        text = f"{_services(undecided)} reach rules that knft cannot interpret"
        yield Finding("warning", text, f"`{command}` prints these rules")
    if losing:
        reasons = ", ".join(sorted({group.reason or "" for group in losing}))
        text = f"with knft, some clients would no longer reach a Service: {_services(losing)}; reasons: {reasons}"
        yield Finding("warning", text, f"`{command}` prints which; for NodePorts, see nodePortAddresses")
    if found.nothing_compared_reason and not (unexpected or undecided):
        text = f"nothing was compared: {found.nothing_compared_reason}"
        yield Finding("not checked", text, "capture the objects and the rules of this cluster again, and compare them")
    elif found.result == "equal":
        more = f"; {expected} kinds of packets differ as expected between the modes" if expected else ""
        remedy = f"`{command}` prints the expected differences" if expected else ""
        rules = "the rules in the kernel and with those that knft would write"
        text = f"packets have the same outcomes with {rules}{more}"
        yield Finding("ok", text, remedy)
    for warning in found.warnings:
        yield Finding("warning", warning, f"see the warnings of `{command}`")


def _services(groups: Iterable[DifferenceGroup]) -> str:
    """Return packets to which Services the groups are about; those to other destinations have no Service."""
    groups = list(groups)
    names = sorted({group.service.partition(":")[0] for group in groups} - {""})
    if not names:
        return f"{sum(group.classes for group in groups)} kinds of packets to no Service"
    more = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    count = "1 Service" if len(names) == 1 else f"{len(names)} Services"
    return f"packets to {count} ({', '.join(names[:_MAX_NAMED])}{more})"
