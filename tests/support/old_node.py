"""A node in a network namespace with what kube-proxy left there and objects of other programs; and its fixture."""

import itertools
from collections.abc import Iterator

import pytest

from tests.support import leftovers
from tests.support.knft_command import knft
from tests.support.lab.namespace import Namespace
from tests.support.leftovers import FAMILIES

BACKENDS = ("nft", "legacy")


class OldNode:
    """A node in a network namespace, on which kube-proxy may have run."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace

    def restore(self, backend: str, family: leftovers.Family, text: str) -> None:
        """Load rules with iptables-restore, as kube-proxy does."""
        self.namespace.run([f"{family.iptables}-{backend}-restore", "--noflush"], stdin=text)

    def add_foreign_rules(self) -> None:
        """Load rules, ipsets and tables of other programs, with both backends."""
        for family in FAMILIES:
            name = f"MINE{family.inet}"
            text = f"create {name} hash:ip family {family.inet}\nadd {name} {family.load_balancer_ip}\n"
            self.namespace.run(["ipset", "restore"], stdin=text)
        self.namespace.run(["ipset", "create", "KUBE-CLUSTER-IP-MINE", "hash:ip"])
        for backend, family in itertools.product(BACKENDS, FAMILIES):
            self.restore(backend, family, leftovers.foreign_rules(family))
        self.namespace.run(["nft", "-f", "-"], stdin=leftovers.FOREIGN_TABLES)

    def add_iptables_mode(self, *backends: str) -> None:
        for backend, family in itertools.product(backends, FAMILIES):
            self.restore(backend, family, leftovers.iptables_mode(family))

    def add_ipsets(self) -> None:
        for family in FAMILIES:
            self.namespace.run(["ipset", "restore", "-exist"], stdin=leftovers.ipsets(family))

    def add_ipvs_mode(self, *backends: str) -> None:
        """Load the rules and ipsets of mode ipvs, without virtual servers and device, which this kernel lacks."""
        self.add_ipsets()
        for backend, family in itertools.product(backends, FAMILIES):
            self.restore(backend, family, leftovers.ipvs_mode(family))

    def add_nftables_mode(self) -> None:
        for family in FAMILIES:
            self.namespace.run(["nft", "-f", "-"], stdin=leftovers.nftables_mode(family))

    def cleanup(self, mode: str, *flags: str) -> str:
        """Run ``knft cleanup --kube-proxy``; return its output."""
        return knft(self.namespace, "cleanup", "--kube-proxy", mode, *flags).stdout

    def rules(self) -> dict[str, str]:
        """Return all rules of both backends and families by program, with counters and policies."""
        return {
            f"{family.iptables}-{backend}": self._rules(f"{family.iptables}-{backend}-save")
            for backend, family in itertools.product(BACKENDS, FAMILIES)
        }

    def _rules(self, command: str) -> str:
        lines = self.namespace.run([command, "-c"]).stdout.splitlines()
        return "\n".join(line for line in lines if not line.startswith("#"))

    def sets(self) -> str:
        return self.namespace.run(["ipset", "save", "-sorted"]).stdout

    def set_names(self) -> set[str]:
        return set(self.namespace.run(["ipset", "list", "-name"]).stdout.split())

    def tables(self) -> set[str]:
        """Return the nftables tables, without those of iptables-nft."""
        lines = self.namespace.run(["nft", "list", "tables"]).stdout.splitlines()
        return {line for line in lines if line.split()[2] not in {"filter", "nat", "mangle"}}

    def state(self) -> tuple[object, ...]:
        """Return everything that a cleanup could change: rules, ipsets and tables."""
        tables = sorted(self.tables())
        listings = [self.namespace.run(["nft", "list", *table.split()]).stdout for table in tables]
        return self.rules(), self.sets(), tables, listings


@pytest.fixture
def old_node() -> Iterator[OldNode]:
    """Return a node in a new network namespace, without rules."""
    namespace = Namespace.create("old-node")
    yield OldNode(namespace)
    namespace.close()
