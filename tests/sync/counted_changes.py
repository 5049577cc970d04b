"""Makes a change of each kind in the current network namespace, and counts its transactions."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import pytest

from knft.families import Family
from knft.sync.proxier import UNUSED_CHAINS_INTERVAL_SECONDS
from tests.support.fake_clock import FakeClock
from tests.support.kernel_harness import KernelHarness, restarted, service, slices
from tests.support.lab.namespace import Namespace
from tests.support.transaction_counts import Counts
from tests.support.transaction_log import Phase, TransactionLog

STICKY: dict[str, Any] = {"sessionAffinity": "ClientIP"}
SHORT: dict[str, Any] = STICKY | {"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 60}}}
LOCAL: dict[str, Any] = {"externalTrafficPolicy": "Local"}
OTHER_HOOK = """
    delete chain {0} knft filter-forward
    add chain {0} knft filter-forward {{ type filter hook forward priority 7; }}
"""


def _with_external_ips(count: int) -> dict[str, Any]:
    addresses = [f"{start}{number}" for number in range(1, count + 1) for start in ("198.51.100.", "2001:db8:1::")]
    return service("large", 15, externalIPs=addresses)


def _node(number: int) -> dict[str, Any]:
    addresses = [f"192.0.2.{number}", f"2001:db8::{number}"]
    status = {"addresses": [{"type": "InternalIP", "address": address} for address in addresses]}
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node-1"}, "status": status}


class CountedChanges:
    """Makes changes of each kind in the current namespace, and counts their transactions; a context manager."""

    def __init__(self, namespace: Namespace, on_counted: Callable[[str], None] = lambda _: None) -> None:
        """Take the namespace; ``on_counted`` is called with the name of each change after it."""
        self.clock = FakeClock()
        self.harness = KernelHarness(namespace, clock=self.clock)
        self.counts: dict[str, dict[Family, Counts]] = {}
        """The counts of each change, by family."""
        self._on_counted = on_counted
        self._log = TransactionLog()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._log.close()

    @contextmanager
    def counted(self, name: str) -> Iterator[None]:
        """Count the transactions of a block; without a name, they are not counted."""
        self._log.take()
        yield
        self.counts[name] = {
            family: Counts(*map(phases.count, (Phase.BEFORE, Phase.VISIBLE, Phase.AFTER)))
            for family, phases in self._log.take().items()
        }
        self.counts.pop("", None)
        self._on_counted(name)

    def change(self, name: str, *objects: dict[str, Any]) -> None:
        """Create or update objects."""
        with self.counted(name):
            self.harness.apply(*objects)
            self.harness.sync()

    def delete_services(self, change: str, *names: str) -> None:
        """Delete Services."""
        with self.counted(change):
            for name in names:
                self.harness.delete("Service", name)
            self.harness.sync()


def _add_services(changes: CountedChanges) -> None:
    changes.change("first sync", service("web", 10, node_port=30080), *slices("web", range(1, 4)))
    changes.change("Service added", service("more", 11, node_port=30081), *slices("more", range(11, 15)))
    local = service("local", 12, node_port=30082, **LOCAL)
    endpoints = slices("local", [21, 22, 23], local=[21, 22])
    changes.change("Service with external traffic policy Local added", local, *endpoints)
    sticky = service("sticky", 13, node_port=30083, **STICKY)
    changes.change("sticky Service added", sticky, *slices("sticky", [31, 32, 33]))
    changes.change("", service("plain", 14), *slices("plain", [41, 42, 43]))


def _scale(changes: CountedChanges) -> None:
    changes.change("endpoint replaced", *slices("plain", [41, 42, 44]))
    plain = "Service with only a cluster IP scaled"
    changes.change(f"{plain}, up to 64 endpoints", *slices("plain", range(41, 51)))
    changes.change(f"{plain} to more than 64 endpoints, a new size", *slices("plain", range(41, 111)))
    changes.change(f"{plain} from that size to 3", *slices("plain", range(41, 44)))
    changes.change("Service with a NodePort scaled to a new size", *slices("web", range(1, 9)))
    changes.change("Service with a NodePort scaled back", *slices("web", range(1, 4)))


def _add_first_endpoints(changes: CountedChanges) -> None:
    for kind, name in (("only a cluster IP", "plain"), ("a NodePort", "web")):
        changes.change("", *slices(name, []))
        changes.change(f"first endpoint of a Service with {kind} added", *slices(name, [1]))
    changes.change("", *slices("plain", [41, 42, 43]), *slices("web", [1, 2, 3]))


def _switch_affinity(changes: CountedChanges) -> None:
    made = "Service made sticky, with"
    changes.change(f"{made} a timeout and size that another sticky Service has", service("plain", 14, **STICKY))
    changes.change(f"{made} a new timeout", service("web", 10, node_port=30080, **SHORT))
    changes.change("endpoint of a sticky Service replaced", *slices("plain", [41, 42, 45]))
    changes.change("sticky Service scaled to a new size", *slices("plain", [41, 42, 45, 46]))
    changes.change(
        "endpoint of a sticky Service removed, and another one gets its index", *slices("plain", [42, 45, 46])
    )
    changes.change("sticky Service made not sticky", service("plain", 14))
    changes.change("", service("web", 10, node_port=30080))
    changes.clock.now += UNUSED_CHAINS_INTERVAL_SECONDS
    changes.change("chains deleted after an hour, for a timeout that no Service has")


def _remove_local_endpoints(changes: CountedChanges) -> None:
    changes.change("", *slices("plain", [41, 42, 43], local=[41, 43]))
    changes.change("local endpoint removed", *slices("plain", [41, 42], local=[41]))
    removed = "local endpoint removed, policy Local, new sizes"
    changes.change(removed, *slices("local", [21, 23], local=[21]))
    changes.change(f"last {removed}", *slices("local", [23]))
    changes.change("first local endpoint added, policy Local", *slices("local", [21, 23], local=[21]))


def _change_policies(changes: CountedChanges) -> None:
    """The first changes create the shared chains."""
    external, internal = LOCAL, {"internalTrafficPolicy": "Local"}
    hashed = service("local", 12, node_port=30082)
    hashed["metadata"]["annotations"] = {"knft.dev/load-balancing": "source-hash"}
    for spec in ({}, internal):
        changes.change("", service("local", 12, node_port=30082, **spec))
    changes.change("", hashed)
    changes.change("load balancing changed to random", service("local", 12, node_port=30082))
    changes.change("load balancing changed to source-hash", hashed)
    changes.change("", service("local", 12, node_port=30082))
    for name, spec in (("external", external), ("internal", internal)):
        changes.change(f"{name} traffic policy changed to Local", service("local", 12, node_port=30082, **spec))
        changes.change(f"{name} traffic policy changed to Cluster", service("local", 12, node_port=30082))


def _change_layout(changes: CountedChanges) -> None:
    changes.change("", _with_external_ips(1), *slices("large", range(201, 231)))
    changes.change("layout changed to wide", _with_external_ips(40))
    changes.change("layout changed from wide", _with_external_ips(1))
    changes.change("", _node(11))
    changes.change("address of the node replaced", _node(12))


def _delete_services(changes: CountedChanges) -> None:
    changes.delete_services("Service deleted", "web")
    changes.delete_services("Service with a local endpoint deleted", "plain")
    changes.delete_services("sticky Service deleted", "sticky")


def _add_and_delete_many(changes: CountedChanges) -> None:
    """With a limit of 8 elements instead of 2 048, two Services are as many pieces as 500."""
    names = ("many-1", "many-2")
    items = [[service(name, number), *slices(name, range(211, 221))] for number, name in enumerate(names, 16)]
    with pytest.MonkeyPatch.context() as patch:
        for module in ("prepare", "table_writer"):
            patch.setattr(f"knft.sync.{module}.MAX_ELEMENTS", 8)
        changes.change("500 Services with 10 endpoints each added", *itertools.chain.from_iterable(items))
        changes.delete_services("500 Services with 10 endpoints each deleted", *names)


def _restart(changes: CountedChanges, namespace: Namespace) -> None:
    with changes.counted("restart, nothing changed"):
        restarted(changes.harness).sync()
    with changes.counted(""):
        namespace.run(["nft", "-f", "-"], stdin="".join(OTHER_HOOK.format(family.nft) for family in Family))
    with changes.counted("restart, the table has another layout and is replaced"):
        restarted(changes.harness).sync()


def make_all_changes(changes: CountedChanges, namespace: Namespace) -> None:
    """Make a change of each kind."""
    for step in (
        _add_services,
        _scale,
        _add_first_endpoints,
        _switch_affinity,
        _remove_local_endpoints,
        _change_policies,
        _change_layout,
        _delete_services,
        _add_and_delete_many,
    ):
        step(changes)
    _restart(changes, namespace)
