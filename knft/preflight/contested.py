"""Checks whether several Services claim one frontend: kube-proxy then has no fixed rules for who gets it."""

from collections.abc import Iterator

from knft.comparison.contested import contested_frontends
from knft.decide.frontends import FrontendClaims, LosingClaim
from knft.explain.cluster import FamilyObjects
from knft.preflight.facts import ObjectFacts, Unread
from knft.preflight.report import Finding

_REMEDY = "leave each frontend to one Service: otherwise the comparison changes whenever kube-proxy writes its rules"


def check_contested(found: ObjectFacts | Unread) -> Iterator[Finding]:
    """Yield the frontends that several Services claim."""
    if isinstance(found, Unread):
        return
    claims = (claim for objects in found.objects.values() for claim in _losing_claims(objects))
    for text in contested_frontends(claims):
        yield Finding("warning", text, _REMEDY)


def _losing_claims(objects: FamilyObjects) -> tuple[LosingClaim, ...]:
    claims = FrontendClaims()
    for name, port in objects.ports.items():
        claims.claim(name, port)
    return claims.losing_claims()
