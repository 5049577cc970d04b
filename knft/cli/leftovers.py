"""What kube-proxy left on this machine: each part is read once, when it is asked for."""

from collections.abc import Callable, Collection
from functools import cached_property, partial
from typing import TypeVar

from knft.errors import KernelError
from knft.kernel import ipvs, xtables
from knft.kernel.addresses import local_addresses
from knft.takeover.chains import ChainPlan, plan_chains
from knft.takeover.names import DEVICE, DEVICE_KIND, SERVER_SETS, Mode
from knft.takeover.saved import Saved, parse_saved
from knft.takeover.servers import ServerPlan, parse_servers, plan_servers
from knft.takeover.sets import SetPlan, plan_sets

Value = TypeVar("Value")


class Node:
    """The machine at hand. What cannot be read is handed to ``report`` and then counts as not there."""

    def __init__(self, report: Callable[[KernelError], None], seconds: float) -> None:
        """Give each program so many ``seconds`` to print what it has."""
        self._report = report
        self._seconds = seconds

    @cached_property
    def saved(self) -> tuple[tuple[xtables.Backend, Saved], ...]:
        """The rules of every backend that is installed and could be read."""
        texts = (
            (backend, self._read(partial(xtables.save, backend, self._seconds), None)) for backend in xtables.backends()
        )
        return tuple((backend, parse_saved(text)) for backend, text in texts if text is not None)

    def chains(self, modes: Collection[Mode]) -> tuple[tuple[xtables.Backend, ChainPlan], ...]:
        """Return what is to be removed of some modes, by backend."""
        return tuple((backend, plan_chains(saved, modes)) for backend, saved in self.saved)

    @cached_property
    def listed_sets(self) -> str | None:
        """The names of all ipsets; None where the machine has no ipset."""
        return self._read(partial(xtables.list_sets, self._seconds), None)

    def sets(self, in_use: Collection[str]) -> SetPlan:
        """Return what is to be destroyed when rules that stay name the sets ``in_use``."""
        return plan_sets(self.listed_sets or "", in_use)

    @cached_property
    def device(self) -> ipvs.Device | None:
        """The link of the device's name, of whatever kind."""
        return self._read(partial(ipvs.read_device, DEVICE), None)

    @property
    def has_device(self) -> bool:
        """Whether there is a link of that name that is kube-proxy's."""
        return self.device is not None and self.device.kind == DEVICE_KIND

    @cached_property
    def servers(self) -> ServerPlan | None:
        """Whose the virtual servers are; None where this kernel has no IPVS, or has not loaded it."""
        text = self._read(ipvs.read_servers, None)
        servers = parse_servers(text or "")
        if not servers:
            return None if text is None else ServerPlan((), ())
        nothing: frozenset[str] = frozenset()
        device = self.device.addresses if self.device is not None and self.has_device else nothing
        return plan_servers(servers, device, self._read(local_addresses, nothing), self._members())

    def _members(self) -> dict[str, str]:
        names = SERVER_SETS.intersection((self.listed_sets or "").split())
        return {name: self._read(partial(xtables.save_set, name, self._seconds), "") for name in names}

    def _read(self, read: Callable[[], Value], otherwise: Value) -> Value:
        try:
            return read()
        except KernelError as error:
            self._report(error)
            return otherwise
