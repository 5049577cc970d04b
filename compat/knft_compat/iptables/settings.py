"""What the iptables mode's own flags and its machine say."""

from msgspec import Struct

from knft.model.names import NamespacedName
from knft_compat.iptables.existing import Existing


class Settings(Struct, frozen=True):
    """Settings of the iptables mode.

    ``has_nfacct`` tells whether the kernel has the counters that some rules name; ``conntrack_is_liberal`` whether it
    takes packets outside the window as valid. ``existing`` is what ``iptables-save`` printed, None where it was not
    asked. ``changed`` are the Services that a partial sync is about, None for a full one.
    """

    localhost_node_ports: bool = True
    has_nfacct: bool = True
    conntrack_is_liberal: bool = False
    existing: Existing | None = None
    changed: frozenset[NamespacedName] | None = None
