"""knft refuses to start if rules would be removed because the node's settings are wrong (docs/behaviour/node.md)."""

from collections.abc import Iterator
from typing import Any

import pytest

from knft.config import Config
from knft.errors import NodeMismatchError
from knft.sync.daemon import Daemon
from knft.sync.node_check import NodeCheck
from tests.support.kernel_harness import CONFIG, KernelHarness, service, slices
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel

MACHINE = frozenset({"127.0.0.1", "192.0.2.11", "fd00::11"})
ACCEPT = "correct the settings, or accept this with --allow-node-mismatch"
MISSING = "--node: there is no Node 'nod-1'; the Nodes are node-1"


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    made = Namespace.create("node-check")
    with made.entered():
        yield made
    made.close()


def _node(name: str = "node-1", *addresses: str) -> dict[str, Any]:
    listed = [{"type": "InternalIP", "address": address} for address in addresses or ("192.0.2.11", "fd00::11")]
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "status": {"addresses": listed}}


OBJECTS = [_node(), service("web", 1, node_port=30080), *slices("web", [1, 2], local=[1])]


class Started:
    """A knft process that has read its objects; its first sync has not started."""

    def __init__(self, namespace: Namespace, *objects: dict[str, Any], config: Config = CONFIG) -> None:
        self.harness = KernelHarness(namespace, config)
        self.harness.dispatcher.update_local_addresses(MACHINE)
        self.harness.apply(*objects)
        self.check = NodeCheck(config, self.harness.dispatcher, tuple(self.harness.proxiers.values()))

    def refusal(self) -> str:
        """Return why knft refuses to start, "" if it does not."""
        try:
            self.check.require_no_loss()
        except NodeMismatchError as error:
            return str(error)
        return ""


def _sync_right_settings(namespace: Namespace, config: Config = CONFIG, *objects: dict[str, Any]) -> None:
    started = Started(namespace, *(objects or OBJECTS), config=config)
    assert started.refusal() == ""
    started.harness.sync()


def test_misspelt_node_is_refused(namespace: Namespace) -> None:
    """It would remove the addresses of NodePorts, and no endpoint would be local."""
    _sync_right_settings(namespace)
    wrong = Started(namespace, *OBJECTS, config=Config("nod-1"))
    assert wrong.refusal() == (
        f"{MISSING}; knft would remove the NodePorts at 192.0.2.11 and the local endpoints 10.244.2.1 (IPv4): {ACCEPT}"
    )


def test_misspelt_node_is_refused_if_only_local_endpoints_are_lost(namespace: Namespace) -> None:
    """All addresses of the machine accept NodePorts."""
    _sync_right_settings(namespace, Config("node-1", nodeport_addresses=("all",)))
    wrong = Started(namespace, *OBJECTS, config=Config("nod-1", nodeport_addresses=("all",)))
    assert wrong.refusal() == f"{MISSING}; knft would remove the local endpoints 10.244.2.1 (IPv4): {ACCEPT}"


def test_address_that_the_machine_lacks_is_refused(namespace: Namespace) -> None:
    _sync_right_settings(namespace)
    wrong = Started(namespace, *OBJECTS, config=Config("node-1", node_ips=("192.0.2.99",)))
    assert wrong.refusal() == (
        "--node-ip: no interface has the node's address 192.0.2.99; the IPv4 addresses of this machine are 192.0.2.11; "
        f"knft would remove the NodePorts at 192.0.2.11 (IPv4): {ACCEPT}"
    )


def test_node_of_another_machine_is_refused(namespace: Namespace) -> None:
    _sync_right_settings(namespace)
    wrong = Started(namespace, *OBJECTS, _node("node-2", "192.0.2.12", "fd00::12"), config=Config("node-2"))
    assert "Node 'node-2': no interface has the node's address 192.0.2.12" in wrong.refusal()


def test_family_without_addresses_is_refused(namespace: Namespace) -> None:
    _sync_right_settings(namespace)
    wrong = Started(namespace, _node("node-1", "192.0.2.11"), *OBJECTS[1:])
    assert wrong.refusal() == (
        "no IPv6 address accepts NodePorts: the node has none; give the node's address with --node-ip; the IPv6 "
        f"addresses of this machine are fd00::11; knft would remove the NodePorts at fd00::11 (IPv6): {ACCEPT}"
    )


ACCEPTED: dict[str, tuple[list[dict[str, Any]], Config]] = {
    "another endpoint is local": (
        [*OBJECTS[:2], *slices("web", [1, 2], local=[2])], CONFIG
    ),
    "no Service has a NodePort": ([_node("node-1", "192.0.2.11"), service("web", 1)], CONFIG),
    "no Node objects": (OBJECTS[1:], Config("node-1", node_ips=("192.0.2.11", "fd00::11"))),
    "the last local pod is gone": ([*OBJECTS[:2], *slices("web", [2])], CONFIG),
    "another address of the machine": (
        [_node("node-1", "127.0.0.2", "fd00::11"), *OBJECTS[1:]], Config("node-1", node_ips=("192.0.2.11",))
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", ACCEPTED)
def test_other_changes_are_not_refused(namespace: Namespace, case: str) -> None:
    _sync_right_settings(namespace)
    objects, config = ACCEPTED[case]
    assert Started(namespace, *objects, config=config).refusal() == ""


@pytest.mark.parametrize("config", [Config("nod-1"), Config("node-1", node_ips=("192.0.2.99", "fd00::99"))])
def test_wrong_settings_that_were_accepted_are_not_refused_later(namespace: Namespace, config: Config) -> None:
    """They remove nothing now, although pods came and went in the meantime."""
    first = Started(namespace, *OBJECTS, config=config)
    assert first.refusal() == ""
    first.harness.sync()
    assert Started(namespace, *OBJECTS[:2], *slices("web", [7], local=[7]), config=config).refusal() == ""


SERVICE_CIDRS = {
    "192.0.2.0/24": "contains the node's address 192.0.2.11",
    "fd00::/64": "contains the node's address fd00::11",
    "10.244.0.0/22": "overlaps the node's pod CIDR 10.244.1.0/24",
}


def _node_with_pod_cidr() -> dict[str, Any]:
    return {**_node(), "spec": {"podCIDRs": ["10.244.1.0/24"]}}


@pytest.mark.parametrize("cidr", SERVICE_CIDRS)
def test_service_cidr_with_other_addresses_is_refused(namespace: Namespace, cidr: str) -> None:
    """Also if the kernel has no rules, and while removals are held."""
    config = Config("node-1", service_cidrs=(cidr,))
    wrong = Started(namespace, _node_with_pod_cidr(), config=config)
    daemon = Daemon(tuple(wrong.harness.proxiers.values()), wrong.harness.dispatcher, node_check=wrong.check)
    daemon.hold_removals()
    with pytest.raises(NodeMismatchError) as raised:
        daemon.check_node()
    assert str(raised.value) == (
        f"--service-cidr: {cidr} {SERVICE_CIDRS[cidr]}; knft would drop new connections to all its addresses that no "
        "Service has: correct the flag, or accept this with --allow-node-mismatch"
    )
    NodeCheck(
        config, wrong.harness.dispatcher, tuple(wrong.harness.proxiers.values()), allow_loss=True
    ).require_usable_service_cidrs()


def test_service_cidr_object_with_other_addresses_is_ignored(
    namespace: Namespace, caplog: pytest.LogCaptureFixture
) -> None:
    """An object of the cluster does not stop a node."""
    ranges = ["192.0.0.0/16", "10.96.0.0/16"]
    item = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "ServiceCIDR",
        "metadata": {"name": "wide"},
        "spec": {"cidrs": ranges},
    }
    started = Started(namespace, _node(), item)
    assert started.refusal() == ""
    started.check.require_usable_service_cidrs()
    started.check.log_new_problems()
    (message,) = caplog.messages
    assert message == (
        "ServiceCIDR 'wide': 192.0.0.0/16 contains the node's address 192.0.2.11; knft ignores this range, because it "
        "would drop new connections to all its addresses that no Service has"
    )
    started.harness.sync()
    assert ("service-cidrs", ("192.0.0.0/16",)) not in started.harness.listing().contents.members
    assert ("service-cidrs", ("10.96.0.0/16",)) in started.harness.listing().contents.members


def test_release_of_held_removals_is_refused(namespace: Namespace) -> None:
    """A manifest could not be read at the start, so nothing was removed, and the settings were not compared."""
    _sync_right_settings(namespace)
    wrong = Started(namespace, *OBJECTS, config=Config("nod-1"))
    proxiers = tuple(wrong.harness.proxiers.values())
    daemon = Daemon(proxiers, wrong.harness.dispatcher, node_check=wrong.check)
    daemon.hold_removals()
    daemon.check_node()
    with pytest.raises(NodeMismatchError, match=MISSING):
        daemon.release_removals()
    assert all(proxier.unknown_objects.anything for proxier in proxiers)


def test_flag_accepts_the_loss(namespace: Namespace) -> None:
    _sync_right_settings(namespace)
    config = Config("nod-1")
    wrong = Started(namespace, *OBJECTS, config=config)
    NodeCheck(
        config, wrong.harness.dispatcher, tuple(wrong.harness.proxiers.values()), allow_loss=True
    ).require_no_loss()


def test_nothing_is_read_from_the_kernel_without_a_problem(namespace: Namespace) -> None:
    _sync_right_settings(namespace)
    started = Started(namespace, *OBJECTS)
    assert started.refusal() == ""
    assert [table.reads for table in started.harness.checked_tables.values()] == [0, 0]


def test_each_problem_is_logged_once_until_it_ends(namespace: Namespace, caplog: pytest.LogCaptureFixture) -> None:
    def warnings() -> list[str]:
        started.check.log_new_problems()
        found = [record.getMessage() for record in caplog.records]
        caplog.clear()
        return found

    started = Started(namespace, _node("node-1", "192.0.2.11"), *slices("web", [1]))
    assert warnings() == []
    started.harness.apply(service("web", 1, node_port=30080))
    problem = (
        "no IPv6 address accepts NodePorts: the node has none; give the node's address with --node-ip; "
        "the IPv6 addresses of this machine are fd00::11"
    )
    assert [warnings(), warnings()] == [[problem], []]
    started.harness.sync()
    assert warnings() == []
    started.harness.apply(_node())
    assert warnings() == []
    started.harness.apply(_node("node-1", "192.0.2.11"))
    assert warnings() == [problem]
    started.harness.delete("Service", "web")
    started.harness.sync()
    started.harness.delete("Node", "node-1")
    started.harness.apply(_node("node-2"))
    assert warnings() == ["--node: there is no Node 'node-1'; the Nodes are node-2"]


@pytest.mark.parametrize(
    ("method", "subject"),
    [((NodeCheck, "log_new_problems"), "the check of the node"), ((Daemon, "_log_repair"), "the log of a sync")],
)
def test_bug_beside_the_sync_does_not_end_the_loop(
    namespace: Namespace,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    method: tuple[type, str],
    subject: str,
) -> None:
    def fail(*_: object) -> None:
        msg = "bug for the test"
        raise ZeroDivisionError(msg)

    monkeypatch.setattr(*method, fail)
    started = Started(namespace, *OBJECTS)
    proxiers = tuple(started.harness.proxiers.values())
    daemon = Daemon(proxiers, started.harness.dispatcher, node_check=started.check)
    assert daemon.sync()
    assert set(caplog.messages) == {f"{subject} failed unexpectedly; please report this"}
    assert started.harness.listing().contents.entries


def test_name_that_only_endpoints_contradict_is_a_warning(
    namespace: Namespace, caplog: pytest.LogCaptureFixture
) -> None:
    """Manifests may leave out all Nodes, and a node may have no pods."""
    _sync_right_settings(namespace)
    addresses = ("192.0.2.11", "fd00::11")
    started = Started(namespace, *OBJECTS[1:], config=Config("nod-1", node_ips=addresses))
    assert started.refusal() == ""
    started.check.log_unknown_name()
    assert [record.getMessage() for record in caplog.records] == [
        "--node: there is no Node object, and no endpoint is on node 'nod-1'; endpoints are on nodes node-1, node-2"
    ]
