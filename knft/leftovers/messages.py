"""Messages about kube-proxy's leftovers."""

from collections.abc import Iterator, Sequence

from knft.counts import format_count
from knft.leftovers.chains import ChainPlan
from knft.proxy_mode import Mode

_LEFTOVERS = {
    Mode.IPTABLES: "iptables rules",
    Mode.IPVS: "IPVS rules, sets and servers",
    Mode.NFTABLES: "nftables tables",
}


def describe_found_chains(backend: str, plan: ChainPlan) -> str:
    """Return how many of kube-proxy's chains a backend has, or how many rules if no chain is left."""
    count = format_count(plan.chain_count, "chain") if plan.chain_count else format_count(plan.rule_count, "rule")
    return f"{count} in {backend}"


def describe_each_removed(backend: str, plan: ChainPlan) -> Iterator[str]:
    """Yield each rule and chain that is removed from a backend."""
    table = ""
    for line in plan.restore_input.splitlines():
        if line.startswith("*"):
            table = line[1:]
        elif line.startswith("-D "):
            yield f"{backend}: rule in table {table}: {line.removeprefix('-D ')}"
        elif line.startswith("-X "):
            yield f"{backend}: chain in table {table}: {line.removeprefix('-X ')}"


def leftover_warning(mode: Mode, found: Sequence[str]) -> str:
    """Return the warning about what kube-proxy left in a mode."""
    return (
        f"kube-proxy's {_LEFTOVERS[mode]} are still in force ({', '.join(found)}); packets reach knft's rules first; "
        f"remove them with `knft cleanup --kube-proxy {mode.value}`"
    )
