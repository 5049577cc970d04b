"""Settings of the iptables mode: its own flags, and facts about the machine."""

from msgspec import Struct

from knft.model.names import NamespacedName
from knft_compat.iptables.existing import ExistingRules


class Settings(Struct, frozen=True):
    """Settings of the iptables mode.

    ``has_nfacct`` tells whether the kernel supports nfacct counters; ``conntrack_is_liberal`` whether
    nf_conntrack_tcp_be_liberal is set, so that conntrack accepts packets outside the TCP window. ``existing`` is the
    output of ``iptables-save``, None if unknown. ``changed_services`` are the Services of a partial sync, None for a
    full sync.
    """

    localhost_node_ports: bool = True
    has_nfacct: bool = True
    conntrack_is_liberal: bool = False
    existing: ExistingRules | None = None
    changed_services: frozenset[NamespacedName] | None = None
