"""The node with knft's stages as ``knft run`` puts them together, in this process, synced when the test says so."""

from collections.abc import Sequence
from typing import Any, Self

from knft.kernel.process import LibraryProcess
from knft.model.objects import Change, KubeObject
from knft.sync.assemble import live_daemon
from tests.kernel.harness import CONFIG, convert
from tests.packets.node import knft
from tests.packets.scenario import Scenario
from tests.support.lab.links import forget_flows
from tests.support.lab.topology import Lab


class LiveNode:
    """The node under test; a context manager that takes its rules away at the end.

    Unlike ProgrammedNode it holds no transaction against the schema, which takes ten times as long as the sync.
    """

    def __init__(self, lab: Lab) -> None:
        """Prepare without objects but the Node."""
        self.namespace = lab.host("node").namespace
        self._objects: dict[tuple[str, str], KubeObject] = {}

    def __enter__(self) -> Self:
        """Start without Services."""
        forget_flows(self.namespace)
        with self.namespace.entered():
            self._library = LibraryProcess()
        self._daemon = live_daemon(CONFIG, self._library)
        return self

    def __exit__(self, *_: object) -> None:
        """Remove knft's tables, and forget the flows they have led."""
        self._library.close()
        knft(self.namespace, "cleanup")
        forget_flows(self.namespace)

    def apply(self, objects: Sequence[dict[str, Any]]) -> None:
        """Make or change objects, and sync."""
        self._daemon.handle([self._change(item) for item in Scenario("", list(objects), ()).manifests()])
        with self.namespace.entered():
            assert self._daemon.sync()

    def _change(self, item: dict[str, Any]) -> Change:
        key = item["kind"], item["metadata"]["name"]
        previous = self._objects.get(key)
        self._objects[key] = current = convert(item)
        return Change(previous, current)
