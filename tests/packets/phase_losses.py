"""What a held packet gets if a phase is committed together with the main phase: why the phase exists.

``python -m tests.packets.phase_losses`` prints the table in docs/design/transaction-phases.md#necessary.
"""

from collections.abc import Iterator
from typing import NamedTuple

from tests.packets.held_packets import REFUSED, SILENT, Point
from tests.packets.held_scenarios import UNTRANSLATED


class Loss(NamedTuple):
    """What a packet gets that is held at a point during a change of this kind, if phases are committed together."""

    kind: str
    address_kind: str
    point: Point
    outcome: str


NEW_CHAINS_LOSSES = (
    Loss(
        "Service with only a cluster IP scaled to more than 64 endpoints, a new size", "cluster", Point.VERDICT, REFUSED
    ),
    Loss("Service with a NodePort scaled to a new size", "node", Point.VERDICT, REFUSED),
    Loss("Service made sticky, with a new timeout", "external", Point.VERDICT, UNTRANSLATED),
    Loss("local endpoint removed, policy Local, new sizes", "external", Point.VERDICT, UNTRANSLATED),
    Loss("layout changed to wide", "external", Point.VERDICT, UNTRANSLATED),
)
CLEANUP_LOSSES = (
    Loss("local endpoint removed", "cluster", Point.HAIRPIN, SILENT),
    Loss("Service with a local endpoint deleted", "cluster", Point.HAIRPIN, SILENT),
    Loss("first endpoint of a Service with a NodePort added", "external", Point.FILTER, UNTRANSLATED),
    Loss("first local endpoint added, policy Local", "external", Point.FILTER, UNTRANSLATED),
    Loss("external traffic policy changed to Cluster", "external", Point.ENDPOINT, UNTRANSLATED),
    Loss("internal traffic policy changed to Local", "cluster", Point.ENDPOINT, REFUSED),
    Loss("internal traffic policy changed to Cluster", "cluster", Point.ENDPOINT, REFUSED),
    Loss("load balancing changed to source-hash", "external", Point.ENDPOINT, UNTRANSLATED),
    Loss("load balancing changed to random", "external", Point.ENDPOINT, UNTRANSLATED),
    Loss("layout changed to wide", "external", Point.ENDPOINT, UNTRANSLATED),
    Loss("layout changed from wide", "external", Point.ENDPOINT, UNTRANSLATED),
)

_POINTS = {
    Point.VERDICT: "before the lookup of the verdict",
    Point.ENDPOINT: "between verdict and endpoint",
    Point.FILTER: "before the filter chains",
    Point.HAIRPIN: "before masquerading",
}
_OUTCOMES = {
    REFUSED: "the client is refused",
    UNTRANSLATED: "it leaves the node untranslated",
    SILENT: "the client gets no answer",
}


def table() -> Iterator[str]:
    """Yield the lines of the table in the documentation."""
    yield "| in the main phase too | change | packet held | then |"
    yield "| --- | --- | --- | --- |"
    for phase, losses in (("new chains", NEW_CHAINS_LOSSES), ("deferred removals", CLEANUP_LOSSES)):
        for loss in losses:
            yield f"| {phase} | {loss.kind} | {_POINTS[loss.point]} | {_OUTCOMES[loss.outcome]} |"


if __name__ == "__main__":
    print(*table(), sep="\n")
