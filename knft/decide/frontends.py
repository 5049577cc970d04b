"""Ownership of frontends that two Services claim (docs/behaviour/ownership.md).

A cluster IP takes precedence over a load balancer IP, and a load balancer IP takes precedence over an external IP: an
external IP must not capture a cluster IP. If both claims are of the same kind, the older Service owns the frontend; if
both are of the same age, the one whose name sorts first.
"""

from msgspec import Struct

from knft.model.names import ServicePortName
from knft.model.plan import Frontend, FrontendKey, FrontendKind
from knft.model.service_port import ServicePort

_Rank = tuple[int, bool, str, ServicePortName]


class LosingClaim(Struct, frozen=True):
    """A claim of ``loser`` to a frontend that ``owner``, a port of another Service, owns."""

    frontend: Frontend
    loser: ServicePortName
    owner: ServicePortName

    def __str__(self) -> str:
        """Return a log message."""
        frontend = self.frontend
        where = f"{frontend.address or 'NodePort'} {frontend.port}/{frontend.protocol}"
        return f"Service port {self.loser} does not get frontend {where}: Service port {self.owner} owns it"


class _Claim(Struct, frozen=True):
    frontend: Frontend
    rank: _Rank


def claimed_frontends(port: ServicePort) -> tuple[Frontend, ...]:
    """Return the frontends that a Service port claims; of duplicates, the one whose kind takes precedence."""
    claims: dict[FrontendKey, Frontend] = {}
    addressed = (
        (FrontendKind.CLUSTER_IP, (port.cluster_ip,)),
        (FrontendKind.LOAD_BALANCER_VIP, port.load_balancer_vips),
        (FrontendKind.EXTERNAL_IP, port.external_ips),
    )
    for kind, addresses in addressed:
        for address in addresses:
            frontend = Frontend(kind, address, port.protocol, port.port)
            claims.setdefault(frontend.key, frontend)
    if port.node_port:
        frontend = Frontend(FrontendKind.NODE_PORT, None, port.protocol, port.node_port)
        claims[frontend.key] = frontend
    return tuple(claims.values())


class FrontendClaims:
    """All claims to the frontends of one family, and the owner of each."""

    def __init__(self) -> None:
        """Start without claims."""
        self._claims: dict[FrontendKey, dict[ServicePortName, _Claim]] = {}
        self._keys: dict[ServicePortName, tuple[FrontendKey, ...]] = {}
        self._contested: set[FrontendKey] = set()

    def claim(self, name: ServicePortName, port: ServicePort | None) -> set[ServicePortName]:
        """Replace the claims of ``name`` (None: no claims); return the Service ports that gain or lose a frontend."""
        previous_owners: dict[FrontendKey, ServicePortName | None] = {}
        for key in self._keys.pop(name, ()):
            previous_owners[key] = self._owner(key)
            self._remove_claim(key, name)
        for frontend in claimed_frontends(port) if port is not None else ():
            previous_owners.setdefault(frontend.key, self._owner(frontend.key))
            self._add_claim(name, frontend, port)
        affected: set[ServicePortName] = set()
        for key, previous_owner in previous_owners.items():
            owner = self._owner(key)
            if previous_owner != owner:
                affected |= {each for each in (previous_owner, owner) if each is not None}
        return affected

    def owned_by(self, name: ServicePortName) -> tuple[Frontend, ...]:
        """Return the frontends that ``name`` owns, in the order of its claims."""
        return tuple(
            self._claims[key][name].frontend
            for key in self._keys.get(name, ())
            if key not in self._contested or self._owner(key) == name
        )

    def losing_claims(self) -> tuple[LosingClaim, ...]:
        """Return all claims to frontends that another Service owns, sorted.

        A claim that loses to another port of the same Service is not returned.
        """
        losing = []
        for key in self._contested:
            owner = self._owner(key)
            for name, claim in self._claims[key].items():
                if owner is not None and name.service != owner.service:
                    losing.append(LosingClaim(claim.frontend, name, owner))
        return tuple(sorted(losing, key=lambda claim: (claim.loser, str(claim.frontend.key))))

    def _owner(self, key: FrontendKey) -> ServicePortName | None:
        claims = self._claims.get(key)
        if not claims:
            return None
        if len(claims) == 1:
            return next(iter(claims))
        return min(claims, key=lambda name: claims[name].rank)

    def _add_claim(self, name: ServicePortName, frontend: Frontend, port: ServicePort | None) -> None:
        created = port.creation_timestamp if port is not None else ""
        claims = self._claims.setdefault(frontend.key, {})
        # A Service without a timestamp is not in an API server yet: it counts as the youngest.
        claims[name] = _Claim(frontend, (frontend.kind, not created, created, name))
        self._keys[name] = (*self._keys.get(name, ()), frontend.key)
        if len(claims) > 1:
            self._contested.add(frontend.key)

    def _remove_claim(self, key: FrontendKey, name: ServicePortName) -> None:
        claims = self._claims[key]
        del claims[name]
        if len(claims) < 2:  # noqa: PLR2004 - a single claim is not contested
            self._contested.discard(key)
        if not claims:
            del self._claims[key]
