"""A node in mode ipvs: what iptables-save, ipset save and ipvsadm -Sn print there, to be changed."""

import re
from ipaddress import ip_address

from knft.cli.captured import Texts
from knft.interpret.compare.services import ServiceNames
from knft.interpret.rules import IpVersion
from knft_compat.saved import Captures
from tests.interpret.mutation.saved import Saved

_OPTIONS = {"-t": 6, "-u": 17, "--sctp-service": 132}
_PROTOCOLS = {"tcp": 6, "udp": 17, "sctp": 132}


class Node:
    """All captures of one family; ``names`` knows whose frontend is whose."""

    def __init__(self, captures: Captures, version: IpVersion, names: ServiceNames, own: str) -> None:
        """Work on a copy; ``own`` is the node's address."""
        self.rules = Saved(captures.rules)
        self.sets = [line for line in captures.sets.splitlines() if not line.startswith("#")]
        self.servers = captures.servers.splitlines()
        self.bound = list(captures.bound)
        self._version = version
        self._names = names
        self._own = own

    def texts(self) -> Texts:
        """Return the captures as they are now."""
        sets, servers = ("".join(f"{line}\n" for line in lines) for lines in (self.sets, self.servers))
        return Texts({self._version: self.rules.text()}, sets, servers, bound=tuple(self.bound))

    def elements(self, name: str) -> list[str]:
        """Return the lines that add to a set, named as it is for IPv4."""
        named = name if self._version == 4 else name.replace("KUBE-", "KUBE-6-", 1)
        return [line for line in self.sets if line.startswith(f"add {named} ")]

    def targets(self, least: int = 1) -> list[str]:
        """Return the lines of real servers whose virtual server has at least so many."""
        lines = [line for line in self.servers if line.startswith("-a ")]
        return [
            line for line in lines if sum(other.split(" -r ")[0] == line.split(" -r ")[0] for other in lines) >= least
        ]

    def virtual(self) -> list[str]:
        """Return the lines of virtual servers that have real ones."""
        return [line for line in self.servers if line.startswith("-A ") and self.of(line)]

    def of(self, server: str) -> list[str]:
        """Return the lines of a virtual server's real ones."""
        return [line for line in self.servers if line.startswith(f"-a {' '.join(server.split()[1:3])} ")]

    def service(self, line: str) -> tuple[str, ...]:
        """Return the Service ports that a line of ipvsadm or ipset is about."""
        words = line.split()
        if words[0] in ("-A", "-a"):
            host, _, port = words[2].rpartition(":")
            return self._named(host.strip("[]"), _OPTIONS[words[1]], int(port))
        parts = words[2].split(",")
        if len(parts) == 1 and parts[0].isdigit():
            protocol = next((number for name, number in _PROTOCOLS.items() if name in words[1].lower()), 6)
            return self._named(self._own, protocol, int(parts[0]))
        if len(parts) == 1:
            return self._named(parts[0], 6, None)
        name, _, port = parts[1].partition(":")
        return self._named(parts[0], _PROTOCOLS[name], int(port))

    def owners(self, target: str) -> tuple[str, ...]:
        """Return the Service ports that have an endpoint, given as in ``KUBE-LOOP-BACK``."""
        address, _, rest = target.split()[2].partition(",")
        port = re.sub(r"^\w+:(\d+).*", r"\1", rest)
        end = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        protocol = _PROTOCOLS[rest.partition(":")[0]]
        lines = [line for line in self.targets() if f" -r {end} " in line and _OPTIONS[line.split()[1]] == protocol]
        return tuple(sorted({name for line in lines for name in self.service(line)}))

    def _named(self, address: str, protocol: int, port: int | None) -> tuple[str, ...]:
        name = self._names.name(int(ip_address(address)), protocol, port, is_local=address == self._own)
        assert name is not None, (address, protocol, port)
        return (name,)
