"""A sync of the iptables mode (docs/behaviour/iptables.md#sync-kinds)."""

from collections.abc import Iterable

from knft.model.names import NamespacedName
from knft_compat.iptables.chains import chain_rules
from knft_compat.iptables.counters import EnsureCounters
from knft_compat.iptables.jump_table import JUMPS, KUBELET_JUMPS
from knft_compat.iptables.names import KUBELET_FIREWALL
from knft_compat.iptables.port import RenderedPort, render_port
from knft_compat.iptables.render_context import RenderContext, render_context
from knft_compat.iptables.service_rules import LOCALHOST_NODE_PORTS_COUNTER, filter_rules, nat_rules
from knft_compat.iptables.settings import Settings
from knft_compat.iptables.stale import chains_of_ports, stale_chains
from knft_compat.iptables.static_rules import (
    FILTER_CHAINS,
    INVALID_PACKETS_COUNTER,
    NAT_CHAINS,
    forward_rules,
    localnet_block_rule,
    node_port_jumps,
)
from knft_compat.jumps import EnsureJumps
from knft_compat.rules import ChainDeletion, Line, RestoreInput, TableInput, mark_rule, masquerade_rules
from knft_compat.sync_input import SyncInput
from knft_compat.sync_output import SyncOutput, Sysctl, Sysctls

_ROUTE_LOCALNET = Sysctl("net/ipv4/conf/all/route_localnet", 1)


def sync(sync_input: SyncInput, settings: Settings) -> SyncOutput:
    """Return the output of a sync: a partial sync if the changed Services are known, else a full sync.

    Only full syncs set the sysctl and create jumps and counters; in a partial sync these parts are empty.
    """
    context = render_context(sync_input, settings)
    services = _services_to_write(sync_input, settings)
    ports = tuple(map(render_port, sync_input.ports))
    written = [services is None or port.name.service in services for port in ports]
    nat = _nat_table(
        sync_input, context, list(zip(ports, written, strict=True)), _existing_nat_chains(sync_input, settings)
    )
    is_full = services is None
    return SyncOutput(
        "iptables",
        sync_input.family,
        (
            Sysctls((_ROUTE_LOCALNET,) if is_full and context.localhost_node_ports else ()),
            EnsureJumps(sync_input.family, (*JUMPS, *KUBELET_JUMPS) if is_full else ()),
            EnsureCounters(
                (INVALID_PACKETS_COUNTER, LOCALHOST_NODE_PORTS_COUNTER) if is_full and context.has_nfacct else ()
            ),
            RestoreInput(sync_input.family, (_filter_table(ports, context, settings), nat)),
        ),
    )


def _services_to_write(sync_input: SyncInput, settings: Settings) -> frozenset[NamespacedName] | None:
    """Return the Services whose chains a partial sync writes, None for a full sync.

    They include Services deleted since the previous sync. When the node's zone changes, the endpoints of all Services
    are selected again (docs/behaviour/tracking.md#event-handling).
    """
    if sync_input.zone_changed:
        return None
    if sync_input.previous_ports is None:
        return settings.changed_services
    return sync_input.changed_services() | (settings.changed_services or frozenset())


def _existing_nat_chains(sync_input: SyncInput, settings: Settings) -> tuple[str, ...]:
    """Return the existing chains of the nat table: from iptables-save if given, else from the previous sync."""
    if settings.existing is not None:
        return settings.existing.chains(sync_input.family, "nat")
    return chains_of_ports(sync_input.previous_ports or ())


def _filter_table(ports: Iterable[RenderedPort], context: RenderContext, settings: Settings) -> TableInput:
    chains, lines = list(FILTER_CHAINS), list[Line]()
    if context.localhost_node_ports:
        chains.append(KUBELET_FIREWALL)
        lines.append(localnet_block_rule())
    for port in ports:
        lines += filter_rules(port)
    lines += forward_rules(context, settings)
    return TableInput("filter", tuple(chains), tuple(lines))


def _nat_table(
    sync_input: SyncInput,
    context: RenderContext,
    ports: Iterable[tuple[RenderedPort, bool]],
    existing_chains: Iterable[str],
) -> TableInput:
    """Return the nat table; each port comes with a flag that tells whether to write its chains."""
    chains = list(NAT_CHAINS)
    lines: list[Line] = [*masquerade_rules(context.masquerade), mark_rule(context.masquerade)]
    active: set[str] = set()
    for port, is_written in ports:
        active.update(port.chain_names)
        lines += nat_rules(port, context)
        if is_written:
            chains += port.chain_names
            lines += chain_rules(port, context)
    stale = stale_chains(existing_chains, active)
    # Declaring a chain flushes it, and only an empty chain can be deleted.
    chains += stale
    lines += map(ChainDeletion, stale)
    lines += node_port_jumps(sync_input.node, context)
    return TableInput("nat", tuple(chains), tuple(lines))
