"""Contest: the claims of several Service ports to one frontend, and which of them owns it.

Everybody who may create a Service may claim an external IP, so thousands of Services may claim one frontend: each
operation takes logarithmic time.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator

from msgspec import Struct

from knft.model.names import NamespacedName, ServicePortName
from knft.model.plan import Frontend

_Rank = tuple[int, bool, str, ServicePortName]


class Claim(Struct, frozen=True, gc=False):
    """A Service port's claim to a frontend; ``created`` is when its Service was created, "" if that is unknown."""

    frontend: Frontend
    name: ServicePortName
    created: str

    @property
    def rank(self) -> _Rank:
        """The precedence of the claim: the smallest rank owns the frontend."""
        # A Service without a timestamp is not in an API server yet: it counts as the youngest.
        return (self.frontend.kind, not self.created, self.created, self.name)


class Contest:
    """The claims to one frontend; at least one, except before the first ``put``."""

    def __init__(self, claims: Iterable[Claim]) -> None:
        """Start with ``claims``, at most one of each Service port."""
        self._claims: dict[ServicePortName, Claim] = {}
        self._counts = Counter[NamespacedName]()
        """The number of claims of each Service."""
        self._heap: list[_Rank] = []
        """The ranks of the claims; a removed claim's rank stays until it is the smallest, or until ``_compact``."""
        for claim in claims:
            self.put(claim)

    def put(self, claim: Claim) -> None:
        """Add a claim; it replaces a claim of the same Service port."""
        self.remove(claim.name)
        self._claims[claim.name] = claim
        self._counts[claim.name.service] += 1
        heapq.heappush(self._heap, claim.rank)

    def remove(self, name: ServicePortName) -> None:
        """Remove the claim of a Service port, if it has one."""
        if self._claims.pop(name, None) is None:
            return
        self._counts[name.service] -= 1
        if not self._counts[name.service]:
            del self._counts[name.service]
        self._compact()

    def _compact(self) -> None:
        """Rebuild the heap once most of its ranks are of removed claims; on average a removal takes constant time."""
        if len(self._heap) > 2 * len(self._claims):
            self._heap = [claim.rank for claim in self._claims.values()]
            heapq.heapify(self._heap)

    @property
    def owner(self) -> Claim:
        """The claim that owns the frontend."""
        while True:
            claim = self._claims.get(self._heap[0][-1])
            if claim is not None and claim.rank == self._heap[0]:
                return claim
            heapq.heappop(self._heap)

    @property
    def losing_count(self) -> int:
        """How many claims are of other Services than the owner's."""
        return len(self._claims) - self._counts[self.owner.name.service]

    def get(self, name: ServicePortName) -> Claim | None:
        """Return the claim of a Service port, None if it has none."""
        return self._claims.get(name)

    def __iter__(self) -> Iterator[Claim]:
        """Iterate over all claims."""
        return iter(self._claims.values())

    def __len__(self) -> int:
        """Count the claims."""
        return len(self._claims)
