"""Who owns a frontend when two Services claim it (DESIGN.md 1.1).

A cluster IP comes before a load balancer VIP, that before an external IP: an external IP must not be able to
capture a cluster IP. Then the older Service wins, then the lower name.
"""

from msgspec import Struct

from knft.model.names import ServicePortName
from knft.model.plan import Frontend, FrontendKey, FrontendKind
from knft.model.service_port import ServicePort

_Rank = tuple[int, bool, str, ServicePortName]


class LosingClaim(Struct, frozen=True):
    """A claim that another Service holds: ``loser`` does not get ``frontend``, ``winner`` has it."""

    frontend: Frontend
    loser: ServicePortName
    owner: ServicePortName

    def __str__(self) -> str:
        """Return the conflict as a sentence."""
        frontend = self.frontend
        return f"{self.loser}: {frontend.address or 'NodePort'} {frontend.port}/{frontend.protocol} is {self.owner}'s"


class _Claim(Struct, frozen=True):
    frontend: Frontend
    rank: _Rank


def claimed_frontends(port: ServicePort) -> tuple[Frontend, ...]:
    """Return what a Service port claims; of duplicates the strongest kind stays."""
    claims: dict[FrontendKey, Frontend] = {}
    addressed = (
        (FrontendKind.CLUSTER_IP, (port.cluster_ip,)),
        (FrontendKind.LOAD_BALANCER_VIP, port.load_balancer_vips),
        (FrontendKind.EXTERNAL_IP, port.external_ips),
    )
    for kind, found in addressed:
        for address in found:
            frontend = Frontend(kind, address, port.protocol, port.port)
            claims.setdefault(frontend.key, frontend)
    if port.node_port:
        frontend = Frontend(FrontendKind.NODE_PORT, None, port.protocol, port.node_port)
        claims[frontend.key] = frontend
    return tuple(claims.values())


class FrontendClaims:
    """Every claim to every frontend of one family, and who holds it."""

    def __init__(self) -> None:
        """Start without claims."""
        self._claims: dict[FrontendKey, dict[ServicePortName, _Claim]] = {}
        self._keys: dict[ServicePortName, tuple[FrontendKey, ...]] = {}
        self._contested: set[FrontendKey] = set()

    def claim(self, name: ServicePortName, port: ServicePort | None) -> set[ServicePortName]:
        """Replace what ``name`` claims (None: nothing); return the Service ports that gain or lose by it."""
        touched: dict[FrontendKey, ServicePortName | None] = {}
        for place in self._keys.pop(name, ()):
            touched[place] = self._owner(place)
            self._remove_claim(place, name)
        for frontend in claimed_frontends(port) if port is not None else ():
            touched.setdefault(frontend.key, self._owner(frontend.key))
            self._add_claim(name, frontend, port)
        affected: set[ServicePortName] = set()
        for place, before in touched.items():
            after = self._owner(place)
            if before != after:
                affected |= {owner for owner in (before, after) if owner is not None}
        return affected

    def owned_by(self, name: ServicePortName) -> tuple[Frontend, ...]:
        """Return the frontends that ``name`` holds, in the order in which it claims them."""
        return tuple(
            self._claims[place][name].frontend
            for place in self._keys.get(name, ())
            if place not in self._contested or self._owner(place) == name
        )

    def losing_claims(self) -> tuple[LosingClaim, ...]:
        """Return every claim that another Service holds, sorted; ports of one Service may well say the same twice."""
        losses = []
        for place in self._contested:
            winner = self._owner(place)
            for name, claim in self._claims[place].items():
                if winner is not None and name.service != winner.service:
                    losses.append(LosingClaim(claim.frontend, name, winner))
        return tuple(sorted(losses, key=lambda loss: (loss.loser, str(loss.frontend.key))))

    def _owner(self, place: FrontendKey) -> ServicePortName | None:
        claims = self._claims.get(place)
        if not claims:
            return None
        if len(claims) == 1:
            return next(iter(claims))
        return min(claims, key=lambda name: claims[name].rank)

    def _add_claim(self, name: ServicePortName, frontend: Frontend, port: ServicePort | None) -> None:
        created = port.creation_timestamp if port is not None else ""
        claims = self._claims.setdefault(frontend.key, {})
        # A Service without a timestamp is not in the API server yet: it counts as the youngest.
        claims[name] = _Claim(frontend, (frontend.kind, not created, created, name))
        self._keys[name] = (*self._keys.get(name, ()), frontend.key)
        if len(claims) > 1:
            self._contested.add(frontend.key)

    def _remove_claim(self, place: FrontendKey, name: ServicePortName) -> None:
        claims = self._claims[place]
        del claims[name]
        if len(claims) < 2:  # noqa: PLR2004 - one claimant has no rival
            self._contested.discard(place)
        if not claims:
            del self._claims[place]
