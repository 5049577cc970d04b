"""Checks the rules that kube-proxy has on the node."""

from collections.abc import Iterator

from knft.leftovers.saved import SavedTable
from knft.preflight.facts import RuleFacts, Unread
from knft.preflight.report import Finding, not_checked
from knft.proxy_mode import Mode

_ACCEPTING = (
    ("FORWARD", "KUBE-FORWARD", "forwarded packets of Services"),
    ("INPUT", "KUBE-NODEPORTS", "packets to health check node ports"),
)
"""Built-in chains, kube-proxy's chains that accept packets in them, and these packets."""


def check_kube_proxy(rules: RuleFacts) -> Iterator[Finding]:
    """Yield kube-proxy's modes by its rules, and what differs when they are removed."""
    yield from (not_checked("rules of kube-proxy", Unread(error)) for error in rules.errors)
    yield from _modes(rules)
    if isinstance(rules.knft_tables, Unread):
        yield not_checked("tables of knft", rules.knft_tables)
    elif rules.knft_tables:
        tables = " and ".join(rules.knft_tables)
        yield Finding("ok", f"knft already runs here, or has run: the kernel has {tables}", "`knft status` tells which")
    for backend, saved in rules.saved.items():
        for table in saved.tables:
            yield from _dropped_without_kube_proxy(backend, table)
        for name in saved.unreadable_tables:
            text = f"table {name} of {backend} has rules that only nft can show, and was not read"
            yield Finding("not checked", text, f"look for chains KUBE-... in `nft list ruleset`, table {name}")


def _modes(rules: RuleFacts) -> Iterator[Finding]:
    found = {mode: texts for mode, texts in rules.leftovers.items() if texts}
    if len(found) > 1:
        modes = " and ".join(mode.value for mode in found)
        remedy = (
            "remove the rules of the mode that kube-proxy does not use now: `knft cleanup --kube-proxy MODE`; start "
            "kube-proxy again afterwards"
        )
        yield Finding("warning", f"rules of modes {modes} are in force at the same time", remedy)
    for mode, texts in found.items():
        remedy = f"remove them after the switch with `knft cleanup --kube-proxy {mode.value}`"
        yield Finding("ok", f"kube-proxy has rules of mode {mode.value}: {', '.join(texts)}", remedy)
    if Mode.IPVS in found:
        remedy = (
            "before you remove kube-proxy's rules, wait until few connections are left: "
            "`grep -c ESTABLISHED /proc/net/ip_vs_conn`"
        )
        text = "connections through IPVS end when its virtual servers are removed: knft cannot take them over"
        yield Finding("warning", text, remedy)
    if not rules.saved and not rules.errors:
        remedy = "install iptables, or use knft's image; without kube-proxy's modes iptables and ipvs, do nothing"
        yield Finding("not checked", "iptables is not installed, so its rules were not read", remedy)
    elif not found and not rules.errors:
        yield Finding("ok", "kube-proxy has no rules on this machine")


def _dropped_without_kube_proxy(backend: str, table: SavedTable) -> Iterator[Finding]:
    """Yield which packets only kube-proxy's rules accept, in chains that drop by default."""
    if table.name != "filter":
        return
    with_rules = {rule.chain for rule in table.rules}
    for chain, kube_proxy_chain, packets in _ACCEPTING:
        if chain in table.dropping and kube_proxy_chain in with_rules:
            text = (
                f"chain {chain} of {backend} drops packets by default; kube-proxy's chain {kube_proxy_chain} accepts "
                f"{packets} in it, and knft has no such rule"
            )
            remedy = (
                f"look at `{backend} -S {chain}`: unless the network plugin has a rule that accepts them, add one "
                f"before `knft cleanup --kube-proxy`"
            )
            yield Finding("warning", text, remedy)
