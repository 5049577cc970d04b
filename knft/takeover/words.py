"""What was found, in sentences for people."""

from collections.abc import Sequence

from knft.takeover.chains import ChainPlan
from knft.takeover.names import Mode

_WHAT = {
    Mode.IPTABLES: "iptables rules",
    Mode.IPVS: "IPVS rules, sets and servers",
    Mode.NFTABLES: "nftables tables",
}


def counted(number: int, noun: str) -> str:
    """Return ``1 chain``, ``2 chains``."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def found_chains(backend: str, plan: ChainPlan) -> str:
    """Say how many chains, or where only jumps are left how many rules, a backend has of kube-proxy's."""
    return f"{counted(plan.chains, 'chain') if plan.chains else counted(plan.rules, 'rule')} in {backend}"


def removed_chains(backend: str, plan: ChainPlan) -> str:
    """Say what was removed from a backend."""
    if not plan.restore:
        return f"{backend}: nothing was there"
    return f"{backend}: {counted(plan.chains, 'chain')} and {counted(plan.rules, 'jump')} removed"


def warning(mode: Mode, found: Sequence[str]) -> str:
    """Say in one line what kube-proxy left in a mode, and what to do."""
    return (
        f"kube-proxy's {_WHAT[mode]} are still here ({', '.join(found)}): knft decides first, but remove them with "
        f"`knft cleanup --kube-proxy {mode.value}`"
    )
