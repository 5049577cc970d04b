"""Editable captures of a node in mode ipvs: output of iptables-save, ipset save and ipvsadm -Sn."""

import re
from ipaddress import ip_address

from knft.comparison.captures import Capture
from knft.families import IpVersion
from knft.interpret.compare.services import ServiceNames
from knft_compat.captures import SimulatedOutput
from tests.mutation.iptables_save import IptablesSave

_OPTIONS = {"-t": 6, "-u": 17, "--sctp-service": 132}
_PROTOCOLS = {"tcp": 6, "udp": 17, "sctp": 132}


class IpvsCaptures:
    """The captures of one IP family; ``names`` gives the Services of frontends."""

    def __init__(self, captures: SimulatedOutput, version: IpVersion, names: ServiceNames, own: str) -> None:
        """Copy the captures; ``own`` is the node's address."""
        self.rules = IptablesSave(captures.rules)
        self.sets = [line for line in captures.sets.splitlines() if not line.startswith("#")]
        self.servers = captures.servers.splitlines()
        self.bound = list(captures.bound_addresses)
        self._version = version
        self._names = names
        self._own = own

    def texts(self) -> Capture:
        """Return the edited captures."""
        sets, servers = ("".join(f"{line}\n" for line in lines) for lines in (self.sets, self.servers))
        return Capture({self._version: self.rules.text()}, sets, servers, ipvs_addresses=tuple(self.bound))

    def elements(self, name: str) -> list[str]:
        """Return the lines that add to a set, given its IPv4 name."""
        named = name if self._version == 4 else name.replace("KUBE-", "KUBE-6-", 1)
        return [line for line in self.sets if line.startswith(f"add {named} ")]

    def real_servers(self, least: int = 1) -> list[str]:
        """Return the lines of real servers of virtual servers with at least ``least`` of them."""
        lines = [line for line in self.servers if line.startswith("-a ")]
        return [
            line for line in lines if sum(other.split(" -r ")[0] == line.split(" -r ")[0] for other in lines) >= least
        ]

    def virtual_servers(self) -> list[str]:
        """Return the lines of virtual servers that have real servers."""
        return [line for line in self.servers if line.startswith("-A ") and self.real_servers_of(line)]

    def real_servers_of(self, server: str) -> list[str]:
        """Return the lines of the real servers of a virtual server."""
        return [line for line in self.servers if line.startswith(f"-a {' '.join(server.split()[1:3])} ")]

    def services_of_line(self, line: str) -> tuple[str, ...]:
        """Return the Service ports of a line of ipvsadm or ipset."""
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

    def services_of_endpoint(self, target: str) -> tuple[str, ...]:
        """Return the Service ports with an endpoint, given as a line of ``KUBE-LOOP-BACK``."""
        address, _, rest = target.split()[2].partition(",")
        port = re.sub(r"^\w+:(\d+).*", r"\1", rest)
        end = f"[{address}]:{port}" if ":" in address else f"{address}:{port}"
        protocol = _PROTOCOLS[rest.partition(":")[0]]
        lines = [
            line for line in self.real_servers() if f" -r {end} " in line and _OPTIONS[line.split()[1]] == protocol
        ]
        return tuple(sorted({name for line in lines for name in self.services_of_line(line)}))

    def _named(self, address: str, protocol: int, port: int | None) -> tuple[str, ...]:
        name = self._names.name(int(ip_address(address)), protocol, port, is_local=address == self._own)
        assert name is not None, (address, protocol, port)
        return (name,)
