"""Declarations are sent only if the table may lack them."""

import pytest

from knft.delta.programmed import ProgrammedContents
from knft.errors import KernelError
from knft.families import Family
from knft.nft.codec.listing import TableListing
from knft.nft.objects import Contents, NamedObject, Table
from knft.render import layout
from knft.sync.declarations import Declarations
from knft.sync.table_snapshot import Owner, TableSnapshot, TableState
from tests.support.kernel_harness import CONFIG
from tests.support.memory_table import MemoryTable

V4 = Family.IPV4
NAMES = [container.name for container in layout.declarations(V4).containers]


def _snapshot(*, lacks: str = "", handle: int = 1, type_of_first: str = "set", is_listed: bool = True) -> TableSnapshot:
    """Return the table as it was read: all sets and maps except one, and a foreign set."""
    listed = {
        NamedObject("set", name): {"handle": handle, "type": type_of_first if name == NAMES[0] else "set"}
        for name in (*NAMES, "their-set")
        if name != lacks
    }
    programmed: ProgrammedContents[Owner] = ProgrammedContents()
    programmed.containers.update(name for name in NAMES if name != lacks)
    listing = TableListing({}, frozenset(programmed.containers), Contents.empty(), declarations=listed)
    return TableSnapshot(programmed, TableState.READY, frozenset(), {}, listing=listing if is_listed else None)


def _accepted() -> Declarations:
    declarations = Declarations(V4, CONFIG)
    declarations.declare(MemoryTable(V4), _snapshot())
    return declarations


def test_own_declarations_need_not_be_repeated() -> None:
    declarations = Declarations(V4, CONFIG)
    assert declarations.are_in_force(_snapshot(), may_be_foreign=False)
    assert not declarations.are_in_force(_snapshot(), may_be_foreign=True)
    assert _accepted().are_in_force(_snapshot(), may_be_foreign=True)


@pytest.mark.parametrize("lacks", [NAMES[0], NAMES[-1]])
@pytest.mark.parametrize("may_be_foreign", [False, True])
def test_missing_set_is_declared(lacks: str, *, may_be_foreign: bool) -> None:
    assert not _accepted().are_in_force(_snapshot(lacks=lacks), may_be_foreign=may_be_foreign)


def test_set_that_is_listed_otherwise_is_declared() -> None:
    """The kernel refuses the declaration if the type differs. The numbers of objects do not count."""
    declarations = _accepted()
    assert not declarations.are_in_force(_snapshot(type_of_first="map"), may_be_foreign=True)
    assert declarations.are_in_force(_snapshot(handle=7), may_be_foreign=True)


def test_foreign_set_does_not_count() -> None:
    assert _accepted().are_in_force(_snapshot(lacks="their-set"), may_be_foreign=True)


def test_table_that_was_not_listed_has_no_accepted_declarations() -> None:
    declarations = Declarations(V4, CONFIG)
    declarations.declare(MemoryTable(V4), _snapshot(is_listed=False))
    assert not declarations.are_in_force(_snapshot(), may_be_foreign=True)


def test_refused_declarations_are_not_accepted() -> None:
    class Refusing(MemoryTable):
        def declare(self, table: Table) -> None:  # noqa: ARG002 - of the interface
            msg = "File exists"
            raise KernelError(msg)

    table, declarations = MemoryTable(V4), Declarations(V4, CONFIG)
    with pytest.raises(KernelError):
        declarations.declare(Refusing(V4), _snapshot())
    assert not declarations.are_in_force(_snapshot(), may_be_foreign=True)
    declarations.declare(table, _snapshot())
    assert list(table.containers) == NAMES
