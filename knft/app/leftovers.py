"""Reads what kube-proxy left on this machine; each part is read once, on first use."""

from collections.abc import Callable, Collection
from functools import cached_property, partial
from typing import TypeVar

from knft.errors import KernelError
from knft.kernel import ipvs, xtables
from knft.kernel.addresses import local_addresses
from knft.leftovers.chains import ChainPlan, plan_chains
from knft.leftovers.names import DEVICE, DEVICE_KIND, SERVER_SETS
from knft.leftovers.saved import SavedRules, parse_saved
from knft.leftovers.servers import ServerPlan, parse_servers, plan_servers
from knft.leftovers.sets import SetPlan, plan_sets
from knft.proxy_mode import Mode

Value = TypeVar("Value")

IPSETS = "ipsets"
SERVERS = "virtual servers"
LINK = f"device {DEVICE}"


class KubeProxyLeftovers:
    """kube-proxy's leftovers. A failed read is passed to ``on_error``, and its part counts as absent.

    ``on_error`` gets the name of the part, too: a backend of iptables such as "iptables-nft", or a constant below.
    """

    def __init__(self, on_error: Callable[[str, KernelError], None], timeout_seconds: float) -> None:
        """Give each program ``timeout_seconds`` for its output."""
        self._on_error = on_error
        self._timeout_seconds = timeout_seconds

    @cached_property
    def saved_rules(self) -> tuple[tuple[xtables.Backend, SavedRules], ...]:
        """The rules of every backend of iptables that is installed and readable."""
        texts = (
            (backend, self._read(partial(xtables.save, backend, self._timeout_seconds), None, backend.name))
            for backend in xtables.backends()
        )
        return tuple((backend, parse_saved(text)) for backend, text in texts if text is not None)

    def chains_to_remove(self, modes: Collection[Mode]) -> tuple[tuple[xtables.Backend, ChainPlan], ...]:
        """Return the chains and rules to remove that belong to ``modes``, by backend."""
        return tuple((backend, plan_chains(saved, modes)) for backend, saved in self.saved_rules)

    @cached_property
    def ipset_names(self) -> str | None:
        """The names of all ipsets; None if ipset is not installed."""
        return self._read(partial(xtables.list_sets, self._timeout_seconds), None, IPSETS)

    def sets_to_destroy(self, in_use: Collection[str]) -> SetPlan:
        """Return which ipsets to destroy: not the sets ``in_use``, which remaining rules refer to."""
        return plan_sets(self.ipset_names or "", in_use)

    @cached_property
    def kube_ipvs_link(self) -> ipvs.Device | None:
        """The link (network interface) kube-ipvs0, of any kind; kube-proxy creates a dummy device of that name."""
        return self._read(partial(ipvs.read_device, DEVICE), None, LINK)

    @property
    def has_ipvs_device(self) -> bool:
        """Whether the link kube-ipvs0 exists and is a dummy device, as kube-proxy creates it."""
        return self.kube_ipvs_link is not None and self.kube_ipvs_link.kind == DEVICE_KIND

    @cached_property
    def servers_to_remove(self) -> ServerPlan | None:
        """Which virtual servers to remove; None if IPVS is not loaded."""
        text = self._read(ipvs.read_servers, None, SERVERS)
        servers = parse_servers(text or "")
        if not servers:
            return None if text is None else ServerPlan((), ())
        nothing: frozenset[str] = frozenset()
        device = self.kube_ipvs_link.addresses if self.kube_ipvs_link is not None and self.has_ipvs_device else nothing
        return plan_servers(servers, device, self._read(local_addresses, nothing, SERVERS), self._set_members())

    def _set_members(self) -> dict[str, str]:
        names = SERVER_SETS.intersection((self.ipset_names or "").split())
        return {name: self._read(partial(xtables.save_set, name, self._timeout_seconds), "", IPSETS) for name in names}

    def _read(self, read: Callable[[], Value], default: Value, part: str) -> Value:
        try:
            return read()
        except KernelError as error:
            self._on_error(part, error)
            return default
