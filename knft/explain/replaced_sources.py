"""Says at which frontends endpoints do not see the client's address, for the first line of an explanation."""

from collections.abc import Iterable, Iterator

from knft.explain.explanation import ExplainedFrontend
from knft.explain.frontend_index import KIND_TEXTS
from knft.explain.sentences import Sentence, Statement, state
from knft.explain.words import listed
from knft.model.plan import FrontendKind

_HOSTS = {frozenset({"outside"}): "from outside", frozenset({"pod"}): "from pods"}
_ALL_HOSTS = "from any host"


def replaced_sources(frontends: Iterable[ExplainedFrontend]) -> Iterator[Statement]:
    """Yield which connections are masqueraded.

    Not those that few clients make: of hosts outside the pod range to cluster IPs. Nor those of the node itself, whose
    address stays one of the node.
    """
    found: dict[str, set[str]] = {}
    for frontend in frontends:
        clients = _masqueraded_clients(frontend)
        if clients:
            found.setdefault(_HOSTS.get(clients, _ALL_HOSTS), set()).add(frontend.what)
    for hosts, names in found.items():
        yield state(Sentence.MASQUERADED, hosts=hosts, frontends=listed(sorted(names)))


def _masqueraded_clients(frontend: ExplainedFrontend) -> frozenset[str]:
    """Return the kinds of clients whose connections that reach an endpoint are all masqueraded."""
    ignored = {"node", "outside"} if frontend.kind == KIND_TEXTS[FrontendKind.CLUSTER_IP] else {"node"}
    reaching = [each for each in frontend.outcomes if each.endpoints and each.fate == "delivered"]
    kept = {each.client for each in reaching if each.source != "masqueraded"}
    return frozenset(each.client for each in reaching).difference(kept, ignored)
