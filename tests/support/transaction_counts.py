"""How many transactions each kind of change takes in one family's table; ``test_transaction_counts`` counts them.

``python -m tests.support.transaction_counts`` writes the table in docs/design/transaction-phases.md.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

DOCUMENT = Path(__file__).parents[2] / "docs/design/transaction-phases.md"
_BEGIN = "<!-- transactions: written by tests/support/transaction_counts.py -->"
_END = "<!-- end of transactions -->"


class Counts(NamedTuple):
    """The numbers of transactions before the one that changes what packets meet, of that one, and after it."""

    before: int = 0
    visible: int = 1
    after: int = 0


ONE = Counts()
NEW_CHAINS = Counts(before=1)
CLEANUP = Counts(after=1)
BOTH = Counts(before=1, after=1)

CHANGES = {
    "first sync": ONE,
    "Service added": ONE,
    "Service with external traffic policy Local added": ONE,
    "sticky Service added": ONE,
    "endpoint replaced": ONE,
    "Service with only a cluster IP scaled, up to 64 endpoints": ONE,
    "Service with only a cluster IP scaled to more than 64 endpoints, a new size": NEW_CHAINS,
    "Service with only a cluster IP scaled from that size to 3": ONE,
    "Service with a NodePort scaled to a new size": NEW_CHAINS,
    "Service with a NodePort scaled back": ONE,
    "Service made sticky, with a timeout and size that another sticky Service has": ONE,
    "Service made sticky, with a new timeout": NEW_CHAINS,
    "endpoint of a sticky Service replaced": ONE,
    "sticky Service scaled to a new size": NEW_CHAINS,
    "endpoint of a sticky Service removed, and another one gets its index": CLEANUP,
    "sticky Service made not sticky": ONE,
    "chains deleted after an hour, for a timeout that no Service has": ONE,
    "first endpoint of a Service with only a cluster IP added": ONE,
    "first endpoint of a Service with a NodePort added": CLEANUP,
    "local endpoint removed": CLEANUP,
    "local endpoint removed, policy Local, new sizes": BOTH,
    "last local endpoint removed, policy Local, new sizes": BOTH,
    "first local endpoint added, policy Local": CLEANUP,
    "external traffic policy changed to Local": ONE,
    "external traffic policy changed to Cluster": CLEANUP,
    "internal traffic policy changed to Local": CLEANUP,
    "internal traffic policy changed to Cluster": CLEANUP,
    "load balancing changed to source-hash": CLEANUP,
    "load balancing changed to random": CLEANUP,
    "layout changed to wide": BOTH,
    "layout changed from wide": CLEANUP,
    "address of the node replaced": ONE,
    "Service deleted": ONE,
    "Service with a local endpoint deleted": CLEANUP,
    "sticky Service deleted": ONE,
    "500 Services with 10 endpoints each added": Counts(before=3),
    "500 Services with 10 endpoints each deleted": Counts(after=3),
    "restart, nothing changed": Counts(visible=0),
    "restart, the table has another layout and is replaced": ONE,
}
"""The transactions of each kind of change. A size is new if no Service had as many endpoints before, a timeout if no
sticky Service had it."""


def table() -> Iterator[str]:
    """Yield the lines of the table in the documentation."""
    yield "| change | before | visible | after |"
    yield "| --- | --- | --- | --- |"
    for name, counts in CHANGES.items():
        yield f"| {name} | {' | '.join(str(count or '') for count in counts)} |"


def with_table(text: str) -> str:
    """Return the document with an up-to-date table between its markers."""
    before, _, rest = text.partition(_BEGIN)
    _, _, after = rest.partition(_END)
    return "\n".join([before + _BEGIN, "", *table(), "", _END + after])


if __name__ == "__main__":
    DOCUMENT.write_text(with_table(DOCUMENT.read_text()))
