"""Checks conntrack's entries, and the sysctls that ``knft run`` would change."""

from collections.abc import Iterator

from knft.preflight.facts import ConntrackFacts
from knft.preflight.report import Finding

_NEARLY_FULL = 0.9
_SYSCTLS = "proc/sys/"


def check_conntrack(found: ConntrackFacts) -> Iterator[Finding]:
    """Yield how full the table is, and which sysctls differ."""
    yield _usage(found)
    for value in found.differing:
        name = value.path.removeprefix(_SYSCTLS).replace("/", ".") if value.path.startswith(_SYSCTLS) else value.path
        current = value.current or "an unknown value"
        change = f"will change {name} from {current} to {value.desired}"
        yield Finding("ok", f"`knft run` {change} when it starts, unless --manifests is given")


def _usage(found: ConntrackFacts) -> Finding:
    if found.entries is None or found.maximum is None:
        text = "the kernel does not tell the number of entries in /proc/sys/net/netfilter"
        return Finding("not checked", text, "run the command where /proc/sys is visible")
    usage = f"{found.entries} of {found.maximum} entries are used"
    if found.entries >= found.maximum > 0:
        remedy = "raise net.netfilter.nf_conntrack_max, or end the program that opens the connections"
        return Finding("problem", f"{usage}: the kernel drops packets of new connections", remedy)
    if found.entries >= _NEARLY_FULL * found.maximum > 0:
        return Finding("warning", f"{usage}", "raise net.netfilter.nf_conntrack_max before the switch")
    return Finding("ok", usage)
