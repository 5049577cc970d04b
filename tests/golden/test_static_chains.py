"""The static rules equal the golden files, and the kernel receives the same rules."""

import pytest
from msgspec import structs

from knft.config import Config
from knft.families import Family
from knft.nft.codec.tables import table_text
from knft.nft.transaction import Transaction
from knft.render import layout
from knft.render.names import TABLE
from tests.golden import DEFAULT, FOLDER, OTHERS, chains, texts
from tests.support.kernel_harness import KernelHarness
from tests.support.lab.namespace import Namespace


@pytest.mark.parametrize("family", list(Family))
def test_static_chains_equal_golden_files(family: Family) -> None:
    """``python -m tests.golden`` updates the files after an intended change."""
    prefix = f"{family.nft}[.-]*nft"
    assert texts(family) == {path.name: path.read_text() for path in FOLDER.glob(prefix)}


@pytest.mark.kernel
@pytest.mark.parametrize("config", [DEFAULT, *OTHERS.values()], ids=["default", *OTHERS])
@pytest.mark.parametrize("family", list(Family))
def test_text_and_transaction_load_the_same_rules(family: Family, config: Config) -> None:
    """The kernel lists the same rules whether they were loaded as text or as JSON."""
    assert _listed_from_text(family, config) == _listed_from_transaction(family, config)


def _listed_from_text(family: Family, config: Config) -> str:
    table = structs.replace(layout.declarations(family, config), chains=chains(family, config))
    namespace = Namespace.create("golden")
    namespace.run(["nft", "-f", "-"], stdin=table_text(table))
    return _listed(namespace)


def _listed_from_transaction(family: Family, config: Config) -> str:
    namespace = Namespace.create("golden")
    with namespace.entered():
        port = KernelHarness(namespace, config).checked_tables[family]
        port.declare(layout.declarations(family, config))
        port.commit(Transaction(family.nft, TABLE, chains(family, config)))
    return _listed(namespace)


def _listed(namespace: Namespace) -> str:
    text = namespace.run(["nft", "list", "ruleset"]).stdout
    namespace.close()
    return text
