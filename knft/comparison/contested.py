"""Names the frontends that several Services claim: kube-proxy has no fixed rules for which of them gets a frontend."""

from collections.abc import Iterable, Iterator

from knft.decide.frontends import LosingClaim
from knft.explain.frontend_index import frontend_text
from knft.explain.words import MAX_LISTED, listed
from knft.model.names import ServicePortName
from knft.model.plan import FrontendKey


def contested_frontends(claims: Iterable[LosingClaim]) -> Iterator[str]:
    """Yield the frontends that several Services claim, one text for all frontends of the same Service ports.

    ``claims`` are those of both families. Of many texts, the last one counts the frontends that the others leave out.
    """
    claimants: dict[tuple[FrontendKey, ServicePortName], dict[ServicePortName, None]] = {}
    for claim in claims:
        claimants.setdefault((claim.frontend.key, claim.owner), {})[claim.loser] = None
    frontends: dict[tuple[ServicePortName, ...], list[str]] = {}
    for (key, owner), losers in claimants.items():
        frontends.setdefault((owner, *losers), []).append(frontend_text(key))
    groups = list(frontends.items())
    for (owner, *rivals), contested in groups[:MAX_LISTED]:
        yield (
            f"contested: {listed(map(str, sorted((owner, *rivals))))} claim {listed(contested)}; kube-proxy's choice "
            f"is not stable, knft gives {'it' if len(contested) == 1 else 'them'} to {owner}"
        )
    if rest := sum(len(contested) for _, contested in groups[MAX_LISTED:]):
        yield f"contested: several Services claim {rest} more frontend{'s' if rest > 1 else ''}; `knft lint` names all"
