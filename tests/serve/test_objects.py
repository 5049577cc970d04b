"""The objects of the running knft, which ``knft explain`` reads in pieces: complete, bounded, and without locks."""

import threading
from functools import partial

import pytest

from knft.control.object_reader import MAX_LISTS
from knft.control.objects import service_path, services_path, slices_path
from knft.errors import ControlError
from knft.families import Family
from knft.model.names import NamespacedName
from knft.model.objects import EndpointSlice, KubeObject, Node, ObjectMeta, Service, ServiceCIDR, ServiceCIDRSpec
from knft.serve import objects
from tests.support.bytecode_steps import count_bytecode_steps
from tests.support.explain_sources import CONFIG
from tests.support.kube_objects import endpoint_slice, service
from tests.support.memory_daemon import MemoryDaemon
from tests.support.waiting import TIMEOUT

WEB = NamespacedName("default", "web")
SMALL_PIECE = 1_000


def cluster(count: int) -> list[KubeObject]:
    """Return Services with a slice of each family."""
    found: list[KubeObject] = []
    for number in range(count):
        name = f"s{number}"
        found += [
            service(name, cluster_ip=f"10.96.{number >> 8}.{number & 255}"),
            endpoint_slice(f"{name}-4", f"10.244.{number >> 8}.{number & 255}", service=name),
            endpoint_slice(f"{name}-6", f"fd00:10:244::{number:x}", service=name, family="IPv6"),
        ]
    return found


def running(*items: KubeObject) -> MemoryDaemon:
    daemon = MemoryDaemon(CONFIG, ("192.0.2.11", "127.0.0.1"))
    daemon.add(*items)
    return daemon


def all_slices(daemon: MemoryDaemon, family: Family = Family.IPV4) -> tuple[EndpointSlice, ...]:
    return daemon.reader.slices_with(family, lambda _: True)


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "PIECE_BYTES", SMALL_PIECE)
    monkeypatch.setattr(objects, "PIECE_SERVICES", 10)


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("is_synced", [False, True])
def test_pieces_contain_all_objects(*, is_synced: bool) -> None:
    """Also those that no sync has brought in force yet."""
    items = cluster(25)
    daemon = running(*items)
    if is_synced:
        assert daemon.daemon.sync()
    assert list(daemon.reader.services()) == [item for item in items if isinstance(item, Service)]
    slices = [item for item in items if isinstance(item, EndpointSlice)]
    for family in Family:
        assert list(all_slices(daemon, family)) == [item for item in slices if item.address_type == family.value]
    assert len([path for path in daemon.paths if "/services/" in path]) > 5
    bodies = [daemon.respond(path).body for path in daemon.paths]
    largest = 3 * SMALL_PIECE  # A piece ends with the object with which it is full.
    assert all(len(body) < largest for body in bodies)


@pytest.mark.usefixtures("small_pieces")
def test_slices_of_one_service_are_split() -> None:
    items = [endpoint_slice(f"web-{number:03}", f"10.244.2.{number}") for number in range(50)]
    daemon = running(service(), *reversed(items), *cluster(3))
    assert list(daemon.reader.slices(WEB).slices) == items
    assert [item for item in all_slices(daemon) if item.metadata.name.startswith("web")] == items
    assert f"{slices_path(Family.IPV4)}/web-" not in daemon.paths[0]
    assert len(daemon.paths) > 20


def test_pending_changes_are_included() -> None:
    """Objects are those of the last event, whether a sync has read them or not."""
    daemon = running(service(), endpoint_slice("web-1", "10.244.2.1"), endpoint_slice("web-2", "10.244.2.2"))
    assert daemon.daemon.sync()
    daemon.add(endpoint_slice("web-1", "10.244.2.9"))
    daemon.delete(endpoint_slice("web-2"))
    assert daemon.reader.slices(WEB).slices == (endpoint_slice("web-1", "10.244.2.9"),)
    daemon.delete(endpoint_slice("web-1"))
    assert daemon.daemon.sync()
    assert daemon.reader.slices(WEB).slices == all_slices(daemon) == ()


def test_service_without_slices_is_no_error() -> None:
    assert running().reader.slices(WEB).slices == ()


def test_node_is_described() -> None:
    node = Node(ObjectMeta("node-1"))
    cidr = ServiceCIDR(ObjectMeta("kubernetes"), ServiceCIDRSpec(("10.96.0.0/16",)))
    found = running(node, cidr).reader.node()
    assert (found.config, found.node, found.service_cidrs) == (CONFIG, node, (cidr,))
    assert found.local_addresses == ("127.0.0.1", "192.0.2.11")
    assert (found.warning, {sync.state for sync in found.families.values()}) == ("", {"waiting"})


def test_missing_node_is_a_warning() -> None:
    found = running(Node(ObjectMeta("node-7"))).reader.node()
    assert (found.node, found.warning) == (None, "--node: there is no Node 'node-1'; the Nodes are node-7")


@pytest.mark.usefixtures("small_pieces")
@pytest.mark.parametrize("is_always", [False, True])
def test_deletion_between_pieces_starts_again(*, is_always: bool) -> None:
    """It moves the Services after it to lower positions, so one of them would be missing."""
    items = cluster(25)
    daemon = running(*items)
    services = [item for item in items if isinstance(item, Service)]
    respond, rest = daemon.respond, list(services)

    def delete_first(path: str) -> object:
        response = respond(path)
        if path != services_path() and rest and (is_always or len(rest) == len(services)):
            daemon.delete(rest.pop(0))
        return response

    daemon.respond = delete_first  # type: ignore[method-assign,assignment]
    if is_always:
        with pytest.raises(ControlError, match="Services were deleted during each reading; retry"):
            daemon.reader.services()
        assert daemon.paths.count(services_path()) == MAX_LISTS
    else:
        assert list(daemon.reader.services()) == services[1:]
        assert daemon.paths.count(services_path()) == 2


@pytest.mark.parametrize(
    "path",
    [
        "/objects/",
        "/objects/pods/0",
        "/objects/services/x",
        "/objects/services/-1",
        f"/objects/services/{'9' * 5000}",
        "/objects/endpointslices/IPv5/0",
        "/objects/endpointslices/IPv4",
    ],
)
def test_unknown_path_is_not_found(path: str) -> None:
    assert running().respond(path).status == 404


def test_position_after_the_last_object_is_empty() -> None:
    daemon = running(*cluster(2))
    for path in (services_path("99"), slices_path(Family.IPV4, "99"), slices_path(Family.IPV6, "99/x")):
        assert b":[]," in daemon.respond(path).body
        assert b'"following":""' in daemon.respond(path).body


def test_request_waits_for_no_lock() -> None:
    """Another thread holds all locks of the sync: a long sync must not delay the health checks of this thread."""
    daemon = running(*cluster(3))
    locks = [daemon.daemon._dispatch_lock, daemon.daemon._service_warnings._lock]  # type: ignore[union-attr]
    locks += [state._lock for state in daemon.states.values()]
    found: list[object] = []

    def read() -> None:
        reader = daemon.reader
        found.extend([reader.node(), reader.services(), reader.slices(WEB), all_slices(daemon)])

    for lock in locks:
        lock.acquire()
    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    thread.join(TIMEOUT)
    assert len(found) == 4


@pytest.mark.parametrize("path", [services_path(), slices_path(Family.IPV4), service_path(WEB)])
def test_cost_of_a_request_does_not_depend_on_the_size_of_the_cluster(
    monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """A request among many Services takes as many steps as one among few, once a piece is full."""
    monkeypatch.setattr(objects, "PIECE_BYTES", SMALL_PIECE)
    steps = []
    for count in (20, 500):
        daemon = running(service(), endpoint_slice("web-1", "10.244.2.1"), *cluster(count))
        daemon.respond(path)  # Warm up.
        steps.append(count_bytecode_steps(partial(daemon.respond, path)))
    few, many = steps
    assert many < few * 1.05
