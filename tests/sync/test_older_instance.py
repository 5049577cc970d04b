"""OlderInstance: a table is left to an older version of knft while that runs, and to nobody else."""

from knft.families import Family
from knft.kernel.notifications import ForeignChange
from knft.sync.older_instance import OlderInstance

OWN, OTHER = "rules-00000001", "rules-00000002"
PORT_ID = 4711


def _change(*chains: str, port_id: int = PORT_ID, process: str = "python (pid 7)") -> ForeignChange:
    return ForeignChange(Family.IPV4, frozenset(chains), process=process, port_id=port_id)


OTHER_RULES = _change("services", OWN, OTHER)
"""The older version deletes this version's marker chain, and adds its own."""


class Processes:
    """The netlink sockets that exist."""

    def __init__(self, *open_ports: int) -> None:
        self.open_ports = {*open_ports}
        self.older = OlderInstance(OWN, self.open_ports.__contains__)


def test_table_is_left_after_repeated_changes_until_the_process_ends() -> None:
    processes = Processes(PORT_ID)
    older = processes.older
    assert not older.record(OTHER_RULES, is_repeated=False)
    assert not older.has_table()
    assert older.record(OTHER_RULES, is_repeated=True)
    assert older.has_table()
    assert not older.take_end()
    processes.open_ports.clear()
    assert older.take_end()
    assert not older.has_table()
    assert not older.take_end()


def test_table_is_not_left_to_other_programs() -> None:
    older = Processes(PORT_ID).older
    for chains in ((), ("services",), ("services", OWN), ("layout-00000002",)):
        assert not older.record(_change(*chains), is_repeated=True)
    assert not older.has_table()


def test_table_is_left_to_a_process_named_knft() -> None:
    """It may have equal rules and other objects."""
    older = Processes(PORT_ID).older
    assert not older.record(_change("services", process="knft-helper (pid 7)"), is_repeated=True)
    assert older.record(_change("services", process="knft (pid 7)"), is_repeated=True)


def test_table_is_not_left_to_a_process_that_has_ended() -> None:
    """Such as ``nft -f`` with a copy of an older table."""
    older = Processes().older
    assert not older.record(OTHER_RULES, is_repeated=True)
    assert not older.has_table()


def test_known_version_gets_the_table_at_its_first_change() -> None:
    """It has replaced its worker process, so this version has taken the table back meanwhile."""
    processes = Processes(PORT_ID)
    assert processes.older.record(OTHER_RULES, is_repeated=True)
    processes.open_ports.clear()
    assert processes.older.take_end()
    processes.open_ports.add(PORT_ID + 1)
    assert not processes.older.record(_change("services", port_id=PORT_ID + 1), is_repeated=False)
    assert processes.older.record(_change(OTHER, port_id=PORT_ID + 1), is_repeated=False)
    assert processes.older.has_table()


def test_new_socket_of_the_older_version_is_followed() -> None:
    processes = Processes(PORT_ID, PORT_ID + 1)
    assert processes.older.record(OTHER_RULES, is_repeated=True)
    assert not processes.older.record(_change(OTHER, port_id=PORT_ID + 1), is_repeated=True)
    processes.open_ports.remove(PORT_ID)
    assert not processes.older.take_end()
    processes.open_ports.clear()
    assert processes.older.take_end()
