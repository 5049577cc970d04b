"""Rules that no Service changes are those in the files, and the kernel is given what is read there."""

import pytest
from msgspec import structs

from knft.config import Config
from knft.model.names import Family
from knft.nft.codec.tables import table_text
from knft.nft.transaction import Transaction
from knft.render import layout
from knft.render.names import NFT_FAMILIES, TABLE
from tests.golden import FOLDER, OTHERS, USUAL, chains, texts
from tests.kernel.harness import KernelHarness
from tests.support.lab.namespace import Namespace


@pytest.mark.parametrize("family", list(Family))
def test_the_skeleton_is_what_the_files_say(family: Family) -> None:
    """Where it is meant to be otherwise, ``python -m tests.golden`` writes them anew."""
    prefix = f"{NFT_FAMILIES[family]}[.-]*nft"
    assert texts(family) == {path.name: path.read_text() for path in FOLDER.glob(prefix)}


@pytest.mark.kernel
@pytest.mark.parametrize("config", [USUAL, *OTHERS.values()], ids=["usual", *OTHERS])
@pytest.mark.parametrize("family", list(Family))
def test_a_sync_sends_what_the_text_says(family: Family, config: Config) -> None:
    """The text and the transaction are two spellings: the kernel lists the same rules for both."""
    assert _listed_from_text(family, config) == _listed_from_transaction(family, config)


def _listed_from_text(family: Family, config: Config) -> str:
    table = structs.replace(layout.declarations(family), chains=chains(family, config))
    namespace = Namespace.create("golden")
    namespace.run(["nft", "-f", "-"], stdin=table_text(table))
    return _listed(namespace)


def _listed_from_transaction(family: Family, config: Config) -> str:
    namespace = Namespace.create("golden")
    with namespace.entered():
        port = KernelHarness(namespace, config).ports[family]
        port.declare(layout.declarations(family))
        port.commit(Transaction(NFT_FAMILIES[family], TABLE, chains(family, config)))
    return _listed(namespace)


def _listed(namespace: Namespace) -> str:
    text = namespace.run(["nft", "list", "ruleset"]).stdout
    namespace.close()
    return text
