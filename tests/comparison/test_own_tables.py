"""knft's tables as the commands read them: the rules that libnftables lists, without the elements that packets add."""

import itertools
from collections.abc import Callable, Iterator

import pytest
import yaml
from msgspec.structs import replace

from knft.errors import KernelError
from knft.families import Family
from knft.interpret import nftables
from knft.interpret.rules import Collection, RuleSet
from knft.kernel import listings
from knft.kernel.listings import list_own_table_json, list_table_json
from knft.kernel.process import WorkerProcess
from knft.kernel.table import KernelTable
from knft.nft.codec.listing import TableListing
from tests.support.knft_command import knft
from tests.support.lab.namespace import Namespace
from tests.support.shop import FLAGS, write_manifests

pytestmark = pytest.mark.kernel

READ = KernelTable.read
CLIENT = {Family.IPV4: "198.51.100.77", Family.IPV6: "2001:db8:77::77"}
WIDE = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "wide", "namespace": "shop"},
    "spec": {
        "clusterIP": "10.96.0.99",
        "externalIPs": [f"203.0.113.{number}" for number in range(1, 60)],
        "sessionAffinity": "ClientIP",
        "ports": [{"name": "http", "port": 80}],
    },
}
WIDE_ENDPOINTS = {
    "apiVersion": "discovery.k8s.io/v1",
    "kind": "EndpointSlice",
    "metadata": {"name": "wide", "namespace": "shop", "labels": {"kubernetes.io/service-name": "wide"}},
    "addressType": "IPv4",
    "ports": [{"name": "http", "port": 8080}],
    "endpoints": [{"addresses": [f"10.244.3.{number}"]} for number in range(1, 20)],
}


@pytest.fixture(scope="module")
def programmed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Namespace]:
    """Return a node with knft's tables, and an affinity entry in each."""
    folder = tmp_path_factory.mktemp("own")
    write_manifests(folder)
    (folder / "wide.yaml").write_text(yaml.safe_dump_all([WIDE, WIDE_ENDPOINTS]))
    node = Namespace.create("own")
    try:
        knft(node, "run", "--once", "--manifests", str(folder), *FLAGS)
        for family, client in CLIENT.items():
            node.run(["nft", f"add element {family.nft} knft affinity-clients {{ {client} . 1:1 timeout 10800s }}"])
        yield node
    finally:
        node.close()


@pytest.fixture
def library(programmed: Namespace) -> Iterator[WorkerProcess]:
    with programmed.entered(), WorkerProcess() as started:
        yield started


def _comparable(rules: RuleSet) -> tuple[RuleSet, dict[str, tuple[Collection, frozenset[str]]]]:
    """Return rules, and their collections without order and without the elements of dynamic sets."""
    found = {name: _without_order(each) for name, each in rules.collections.items()}
    return replace(rules, collections={}), found


def _without_order(collection: Collection) -> tuple[Collection, frozenset[str]]:
    elements = () if collection.is_dynamic else collection.elements
    return replace(collection, elements=()), frozenset(map(repr, elements))


@pytest.mark.parametrize("family", Family)
def test_rules_are_those_that_libnftables_lists(library: WorkerProcess, family: Family) -> None:
    own, listed = list_own_table_json(library, family, "knft"), list_table_json(library, family, "knft")
    assert own is not None
    assert listed is not None
    ours, theirs = (_comparable(nftables.read(text, family.version)) for text in (own, listed))
    assert ours == theirs
    assert sum(bool(elements) for _, elements in theirs[1].values()) > 8
    assert (CLIENT[family] in listed, CLIENT[family] in own) == (True, False)


def test_missing_table_is_none(library: WorkerProcess) -> None:
    assert list_own_table_json(library, Family.IPV4, "other") is None


def test_table_that_knft_cannot_read_is_listed_by_libnftables(
    programmed: Namespace, library: WorkerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has a verdict that knft never writes, or transactions of other programs interrupt each of three readings."""

    def own() -> str:
        return list_own_table_json(library, Family.IPV4, "knft") or ""

    where, element = "element ip knft service-ips", "{ 10.96.7.7 . tcp . 80 : accept }"
    programmed.run(["nft", f"add {where} {element}"])
    assert CLIENT[Family.IPV4] in own()
    assert "10.96.7.7" in own()
    programmed.run(["nft", f"delete {where} {element}"])
    assert CLIENT[Family.IPV4] not in own()

    generations = itertools.count()
    monkeypatch.setattr(listings, "_generation", generations.__next__)
    assert CLIENT[Family.IPV4] in own()
    assert next(generations) == 2 * 3
    monkeypatch.setattr(listings, "_generation", iter((1, 2, 2, 2)).__next__)
    assert CLIENT[Family.IPV4] not in own()


def _unreadable(table: KernelTable) -> TableListing:
    found = READ(table)
    assert found is not None
    return replace(found, unreadable=frozenset({"service-ips"}))


def _refused(_: KernelTable) -> TableListing:
    msg = "refused"
    raise KernelError(msg)


@pytest.mark.parametrize("read", [_unreadable, _refused])
def test_table_of_which_knft_cannot_read_all_elements_is_listed_by_libnftables(
    library: WorkerProcess, monkeypatch: pytest.MonkeyPatch, read: Callable[[KernelTable], TableListing]
) -> None:
    monkeypatch.setattr(KernelTable, "read", read)
    assert CLIENT[Family.IPV4] in (list_own_table_json(library, Family.IPV4, "knft") or "")
