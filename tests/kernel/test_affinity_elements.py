"""Endpoint IDs and clients with session affinity are read by netlink as they were written, and as nft lists them."""

import pytest

from knft.families import Family
from knft.kernel.table import KernelTable
from knft.nft.codec.listing import parse_listing
from knft.nft.codec.tables import declarations_text, transaction_json, transaction_text
from knft.nft.objects import ArrayName, Contents, ElementTimeout, Key, Value
from knft.nft.transaction import Transaction
from knft.render import layout
from tests.support.lab.namespace import Namespace
from tests.support.nft_process import NamespacedLibrary, library_in

pytestmark = pytest.mark.kernel

FAMILIES = pytest.mark.parametrize("family", list(Family), ids=lambda family: family.value)


@pytest.fixture
def library(namespace: Namespace) -> NamespacedLibrary:
    return library_in(namespace)


def _read(library: NamespacedLibrary, family: Family) -> Contents:
    listing = KernelTable(library, family, "knft").read()
    assert listing is not None
    assert listing.unreadable == frozenset()
    return listing.contents


def _listed(library: NamespacedLibrary, family: Family) -> Contents:
    return parse_listing(library.run(f"list table {family.nft} knft")).contents


@FAMILIES
def test_endpoint_ids_are_those_that_were_written(library: NamespacedLibrary, family: Family) -> None:
    """As JSON and as text; the kernel stores a priority in the byte order of the machine."""
    library.run(declarations_text(layout.declarations(family)))
    address = "10.96.0.1" if family is Family.IPV4 else "fd00:10:96::1"
    ids: dict[str, dict[Key, Value]] = {
        "endpoint-ids-tcp": {(address, 80, 0): 1, (address, 80, 2): 0x01020304},
        "local-nodeport-endpoint-ids-sctp": {(30080, 0): 0x10000},
        "wide-endpoint-ids": {(5, 1, 0): (1 << 32) - 2},
    }
    arrays = {
        ArrayName("endpoint-ids-tcp", (address, 80)): (1, None, 0x01020304),
        ArrayName("local-nodeport-endpoint-ids-sctp", (30080,)): (0x10000,),
        ArrayName("wide-endpoint-ids", (5, 1)): ((1 << 32) - 2,),
    }
    for encode in (lambda transaction: transaction_json(transaction).decode(), transaction_text):
        library.run(encode(Transaction(family.nft, "knft", added=ids)))
        assert _read(library, family).arrays == arrays
        assert _listed(library, family).arrays == arrays
        removed = {name: tuple(elements) for name, elements in ids.items()}
        library.run(encode(Transaction(family.nft, "knft", removed=removed)))
        assert _read(library, family) == Contents.empty()


@FAMILIES
def test_clients_have_their_timeouts(library: NamespacedLibrary, family: Family) -> None:
    """Traffic adds them, so they are not part of the contents."""
    client = "192.0.2.1" if family is Family.IPV4 else "2001:db8::1"
    library.run(declarations_text(layout.declarations(family)))
    elements = f"{client} . 65538 timeout 3h expires 2h, {client} . 4294967294 timeout 1h"
    library.run(f"add element {family.nft} knft affinity-clients {{ {elements} }}")
    table = KernelTable(library, family, "knft")

    found = table.dynamic_elements()["affinity-clients"]

    assert found.keys() == {(client, 65538), (client, (1 << 32) - 2)}
    timeout = found[client, 65538]
    assert isinstance(timeout, ElementTimeout)
    assert timeout.timeout == 10800
    assert 7100 <= timeout.expires <= 7200
    assert _read(library, family) == Contents.empty()
