"""The node with the daemon of ``knft run`` in this process.

It syncs when the test asks for it.
"""

from collections.abc import Sequence
from typing import Any, Self

from knft.kernel.process import WorkerProcess
from knft.model.objects import KubeObject, ObjectChange
from knft.sync.assemble import live_daemon
from tests.support.kernel_harness import CONFIG, decode_manifest
from tests.support.knft_command import remove_tables
from tests.support.lab.links import flush_conntrack
from tests.support.lab.topology import Lab
from tests.support.scenario import DEFAULT_NODE, Scenario


class InProcessNode:
    """The node under test; a context manager that removes the rules at the end.

    Unlike ProgrammedNode it does not validate transactions against the schema, which takes ten times as long as a sync.
    """

    def __init__(self, lab: Lab) -> None:
        """Take the lab; there is no object but the Node."""
        self.namespace = lab.host("node").namespace
        self.node = DEFAULT_NODE
        """The Node; a change takes effect with the next ``apply``."""
        self._objects: dict[tuple[str, str], KubeObject] = {}

    def __enter__(self) -> Self:
        """Start without Services."""
        flush_conntrack(self.namespace)
        with self.namespace.entered():
            self.worker = WorkerProcess()
        self._daemon = live_daemon(CONFIG, self.worker)
        return self

    def delete_tables(self) -> None:
        """Delete knft's tables: in its own process, because another program must not where the tables are owned."""
        self.worker.run("delete table ip knft\ndelete table ip6 knft")

    def start_again(self) -> None:
        """Continue as a new process with the same objects, and sync."""
        self._daemon = live_daemon(CONFIG, self.worker)
        self._daemon.handle([ObjectChange(None, current) for current in self._objects.values()])
        self._sync()

    def __exit__(self, *_: object) -> None:
        """Remove knft's tables, and the conntrack entries of their translations."""
        self.worker.close()
        remove_tables(self.namespace)
        flush_conntrack(self.namespace)

    def apply(self, objects: Sequence[dict[str, Any]], *, deleted: Sequence[str] = ()) -> None:
        """Add or change objects, delete the Services with the names ``deleted``, and sync."""
        changes = [self._change(item) for item in Scenario("", list(objects), (), node=self.node).manifests()]
        changes += [ObjectChange(self._objects.pop(("Service", name)), None) for name in deleted]
        self._daemon.handle(changes)
        self._sync()

    def delete_services(self) -> None:
        """Delete all Services, and sync."""
        self.apply([], deleted=[name for kind, name in self._objects if kind == "Service"])

    def _sync(self) -> None:
        with self.namespace.entered():
            assert self._daemon.sync()

    def _change(self, item: dict[str, Any]) -> ObjectChange:
        key = item["kind"], item["metadata"]["name"]
        previous = self._objects.get(key)
        self._objects[key] = current = decode_manifest(item)
        return ObjectChange(previous, current)
