"""Checks whether several Services claim one frontend: kube-proxy then has no fixed rules for who gets it."""

from collections.abc import Iterator

from knft.decide.frontends import FrontendClaims
from knft.explain.cluster import FamilyObjects
from knft.explain.frontend_index import frontend_text
from knft.explain.words import listed
from knft.model.names import ServicePortName
from knft.model.plan import FrontendKey
from knft.preflight.facts import ObjectFacts, Unread
from knft.preflight.report import Finding

_REMEDY = "leave each frontend to one Service: otherwise the comparison changes whenever kube-proxy writes its rules"


def check_contested(found: ObjectFacts | Unread) -> Iterator[Finding]:
    """Yield the frontends that several Services claim, one finding for the same Services."""
    if isinstance(found, Unread):
        return
    frontends: dict[tuple[ServicePortName, ...], list[str]] = {}
    for objects in found.objects.values():
        for key, names in _claimants(objects).items():
            frontends.setdefault(tuple(names), []).append(frontend_text(key))
    for (owner, *losers), contested in frontends.items():
        text = (
            f"contested: {listed(map(str, sorted((owner, *losers))))} claim {listed(contested)}; kube-proxy's choice "
            f"is not stable, knft gives {'it' if len(contested) == 1 else 'them'} to {owner}"
        )
        yield Finding("warning", text, _REMEDY)


def _claimants(objects: FamilyObjects) -> dict[FrontendKey, list[ServicePortName]]:
    """Return the Service ports that claim each contested frontend, its owner first."""
    claims = FrontendClaims()
    for name, port in objects.ports.items():
        claims.claim(name, port)
    found: dict[FrontendKey, list[ServicePortName]] = {}
    for claim in claims.losing_claims():
        found.setdefault(claim.frontend.key, [claim.owner]).append(claim.loser)
    return found
