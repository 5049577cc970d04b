"""A network namespace with others' rules in it, and ways to put kube-proxy's leftovers beside them."""

import itertools
from collections.abc import Iterator

import pytest

from tests.support.knft_command import knft
from tests.support.lab.namespace import Namespace
from tests.takeover import leftovers
from tests.takeover.leftovers import FAMILIES

BACKENDS = ("nft", "legacy")


class OldNode:
    """A node on which kube-proxy may have been at work."""

    def __init__(self, namespace: Namespace) -> None:
        self.namespace = namespace

    def restore(self, backend: str, family: leftovers.Family, text: str) -> None:
        """Load rules as kube-proxy does."""
        self.namespace.run([f"{family.iptables}-{backend}-restore", "--noflush"], stdin=text)

    def add_others(self) -> None:
        """Put rules, sets and tables of others in place, in both backends."""
        for family in FAMILIES:
            text = f"create MINE{family.inet} hash:ip family {family.inet}\nadd MINE{family.inet} {family.vip}\n"
            self.namespace.run(["ipset", "restore"], stdin=text)
        self.namespace.run(["ipset", "create", "KUBE-CLUSTER-IP-MINE", "hash:ip"])
        for backend, family in itertools.product(BACKENDS, FAMILIES):
            self.restore(backend, family, leftovers.foreign(family))
        self.namespace.run(["nft", "-f", "-"], stdin=leftovers.FOREIGN_TABLES)

    def add_iptables_mode(self, *backends: str) -> None:
        for backend, family in itertools.product(backends, FAMILIES):
            self.restore(backend, family, leftovers.iptables_mode(family))

    def add_ipsets(self) -> None:
        for family in FAMILIES:
            self.namespace.run(["ipset", "restore", "-exist"], stdin=leftovers.ipsets(family))

    def add_ipvs_mode(self, *backends: str) -> None:
        """Load the IPVS mode's rules and sets; its servers and device this kernel does not have."""
        self.add_ipsets()
        for backend, family in itertools.product(backends, FAMILIES):
            self.restore(backend, family, leftovers.ipvs_mode(family))

    def add_nftables_mode(self) -> None:
        for family in FAMILIES:
            self.namespace.run(["nft", "-f", "-"], stdin=leftovers.nftables_mode(family))

    def cleanup(self, mode: str) -> str:
        """Run ``knft cleanup --kube-proxy``; return what it said."""
        return knft(self.namespace, "cleanup", "--kube-proxy", mode).stdout

    def rules(self) -> dict[str, str]:
        """Return all rules of both backends and families, with counters and policies."""
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
        """Return the nftables tables that are not iptables-nft's."""
        lines = self.namespace.run(["nft", "list", "tables"]).stdout.splitlines()
        return {line for line in lines if line.split()[2] not in {"filter", "nat", "mangle"}}

    def state(self) -> tuple[object, ...]:
        """Return everything that a cleanup could touch."""
        named = sorted(self.tables())
        listed = [self.namespace.run(["nft", "list", *table.split()]).stdout for table in named]
        return self.rules(), self.sets(), named, listed


@pytest.fixture
def old_node() -> Iterator[OldNode]:
    """A namespace of the test's own, empty at first."""
    namespace = Namespace.create("old-node")
    yield OldNode(namespace)
    namespace.close()
