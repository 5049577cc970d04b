"""Two knft processes with equal objects in one network namespace, without the instance lock, come to rest."""

import time
from collections.abc import Iterator, Sequence
from typing import Any, Self

import pytest

from knft.families import Family
from knft.kernel.notifications import ForeignChangeMonitor
from knft.kernel.process import WorkerProcess
from knft.kernel.table import KernelTable
from knft.nft.objects import Array, ArrayName
from knft.render.names import TABLE
from knft.sync.invalidation import Invalidation
from tests.support.kernel_harness import KernelHarness, service, slices
from tests.support.lab.namespace import Namespace

pytestmark = pytest.mark.kernel
MAX_ROUNDS = 4
"""The most rounds in which a process may find foreign changes, after one change of the objects."""


class Instance:
    """A knft process with libnftables of its own. It syncs when the test says so."""

    def __init__(self, namespace: Namespace) -> None:
        self.monitor = ForeignChangeMonitor(TABLE)
        self.worker = WorkerProcess(self.monitor.set_own_port_ids)
        self.worker.run("list tables")
        self.harness = KernelHarness(
            namespace,
            clock=time.monotonic,
            table=lambda _, family, name, **options: KernelTable(self.worker, family, name, **options),
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.worker.close()
        self.monitor.close()

    def check_foreign_changes(self) -> bool:
        """Sync if the other process has changed a table; return whether it has."""
        found = False
        while changes := self.monitor.receive(0):
            for change in changes:
                self.harness.proxiers[change.family].invalidate(Invalidation(declarations=True))
            found = True
        if found:
            self.harness.sync()
        return found


@pytest.fixture
def instances(namespace: Namespace) -> Iterator[tuple[Instance, Instance]]:
    with Instance(namespace) as first, Instance(namespace) as second:
        yield first, second


def _change_objects(instances: Sequence[Instance], *items: dict[str, Any], together: bool) -> None:
    """Change the objects of all instances; the first one syncs before or after the second one has them."""
    for instance in instances:
        instance.harness.apply(*items)
        if not together:
            instance.harness.sync()
    if together:
        for instance in instances:
            instance.harness.sync()


def _rounds_until_quiet(instances: Sequence[Instance]) -> int:
    """Let the instances react to each other; return the number of rounds in which one had to check the table."""
    for rounds in range(MAX_ROUNDS + 1):
        found = [instance.check_foreign_changes() for instance in instances]
        if not any(found):
            return rounds
    pytest.fail("two processes sync without end")


CHANGES: dict[str, list[list[dict[str, Any]]]] = {
    "sticky": [
        [service("web", sessionAffinity="ClientIP"), *slices("web", numbers)]
        for numbers in ([11, 12, 13], [11, 13], [11, 12, 14])
    ],
    "no longer sticky": [
        [service("web", sessionAffinity=affinity), *slices("web", [11, 12])] for affinity in ("ClientIP", "None")
    ],
    "endpoints": [[service("web", node_port=30080), *slices("web", range(10, 10 + count))] for count in (3, 150, 2)],
}


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_equal_processes_come_to_rest(
    instances: tuple[Instance, Instance], changes: list[list[dict[str, Any]]], *, together: bool
) -> None:
    """Before, each took the declarations and the rewritten chains of the other for changes, without end."""
    for items in changes:
        _change_objects(instances, *items, together=together)
        _rounds_until_quiet(instances)
    for instance in instances:
        harness = instance.harness
        harness.sync()
        assert harness.last_transaction().is_empty
    assert _rounds_until_quiet(instances) == 0


def test_foreign_change_that_changes_nothing_is_not_repaired(instances: tuple[Instance, Instance]) -> None:
    """The kernel notifies programs of repeated declarations, and of a chain whose rules are replaced by equal ones."""
    first, second = instances
    _change_objects(instances, service("web"), *slices("web", [11, 12]), together=False)
    _rounds_until_quiet(instances)
    namespace = first.harness.namespace
    chain = namespace.run(["nft", "list", "chain", "ip", "knft", "services"]).stdout
    edit = f"flush chain ip knft services\n{chain}\nadd set ip knft cluster-ips {{ type ipv4_addr; }}"
    namespace.run(["nft", "-f", "-"], stdin=edit)
    assert first.check_foreign_changes()
    assert first.harness.last_transaction().is_empty
    assert second.check_foreign_changes()
    assert _rounds_until_quiet(instances) == 0


def test_endpoint_ids_of_the_other_process_are_adopted(instances: tuple[Instance, Instance]) -> None:
    """The second process missed a change, so it would give another ID to the endpoint that was added again."""
    first, second = instances
    _change_objects(instances, service("web", sessionAffinity="ClientIP"), *slices("web", [11, 12, 13]), together=False)
    _rounds_until_quiet(instances)
    before = _endpoint_ids(first)
    _change_objects([first], *slices("web", [11, 13]), together=False)
    _change_objects(instances, *slices("web", [11, 12, 13, 14]), together=False)
    _rounds_until_quiet(instances)
    assert _endpoint_ids(first) == _endpoint_ids(second)
    ((_, old),), ((_, new),) = before.items(), _endpoint_ids(first).items()
    assert len(set(old) & set(new)) == 2
    assert len(new) == 4


def _endpoint_ids(instance: Instance) -> dict[ArrayName, Array]:
    """Return the endpoint IDs that a process has recorded; they are those in the kernel."""
    programmed = instance.harness.proxiers[Family.IPV4]._writer.programmed
    assert programmed is not None
    arrays, found = programmed.all_contents().arrays, instance.harness.listing().contents.arrays
    ids = {name: array for name, array in arrays.items() if "endpoint-ids" in name.container}
    assert ids == {name: array for name, array in found.items() if "endpoint-ids" in name.container}
    return ids
