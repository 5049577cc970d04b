"""Ownership of frontends that two Services claim (docs/behaviour/ownership.md).

A cluster IP takes precedence over a load balancer IP, and a load balancer IP takes precedence over an external IP: an
external IP must not capture a cluster IP. If both claims are of the same kind, the older Service owns the frontend; if
both are of the same age, the one whose name sorts first.
"""

from collections.abc import Iterable

from msgspec import Struct

from knft.decide.contest import Claim, Contest
from knft.model.names import ServicePortName
from knft.model.plan import Frontend, FrontendKey, FrontendKind
from knft.model.service_port import ServicePort


class LosingClaim(Struct, frozen=True):
    """A claim of ``loser`` to a frontend that ``owner``, a port of another Service, owns."""

    frontend: Frontend
    loser: ServicePortName
    owner: ServicePortName

    def __str__(self) -> str:
        """Return a log message."""
        frontend = self.frontend
        where = f"{frontend.address or 'NodePort'} {frontend.port}/{frontend.protocol}"
        return f"Service port {self.loser} does not get frontend {where}, which Service port {self.owner} owns"


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
    """All claims to the frontends of one family, and the owner of each.

    A change of one claim takes logarithmic time, however many Service ports claim the same frontend.
    """

    def __init__(self) -> None:
        """Start without claims."""
        self._claims: dict[ServicePortName, tuple[Claim, ...]] = {}
        self._owning: dict[FrontendKey, Claim] = {}
        """The claim that owns each frontend."""
        self._contests: dict[FrontendKey, Contest] = {}
        """All claims to each frontend that has more than one."""
        self._newly_losing: dict[tuple[FrontendKey, ServicePortName], None] = {}
        self._reported_losing: dict[tuple[FrontendKey, ServicePortName], LosingClaim] = {}
        """The claims that ``take_newly_losing_claims`` returned and that may still lose."""
        self._changed_reported: dict[tuple[FrontendKey, ServicePortName], None] = {}
        """Those of them that changed, or became the owner, since the last ``take_ended_losing_claims``."""
        self.losing_count = 0
        """How many claims are to a frontend that another Service owns."""

    def claim(self, name: ServicePortName, port: ServicePort | None) -> set[ServicePortName]:
        """Replace the claims of ``name`` (None: no claims); return the Service ports that gain or lose a frontend."""
        previous = {claim.frontend.key: claim for claim in self._claims.pop(name, ())}
        current = _claims(name, port) if port is not None else {}
        if current:
            self._claims[name] = tuple(current.values())
        affected: set[ServicePortName] = set()
        for key in previous | current:
            if previous.get(key) != current.get(key):
                affected |= self._replace(key, name, previous.get(key), current.get(key))
        return affected

    def _replace(
        self, key: FrontendKey, name: ServicePortName, previous: Claim | None, current: Claim | None
    ) -> set[ServicePortName]:
        """Replace the claim of ``name`` to one frontend; return the Service ports that gain or lose it."""
        if current is not None and key not in self._owning:
            self._owning[key] = current
            return {name}
        owner, losing_count = self._owning.get(key), self._losing_count(key)
        if current is not None:
            self._put(key, current)
        else:
            self._remove(key, name)
        self.losing_count += self._losing_count(key) - losing_count
        new_owner = self._owning.get(key)
        if current is not None and _loses(current, new_owner) and not (previous and _loses(previous, owner)):
            self._newly_losing[key, name] = None
        if owner is not None and _loses(owner, new_owner):
            self._newly_losing[key, owner.name] = None
        for each in (name, *([new_owner.name] if new_owner is not None else ())):
            if (key, each) in self._reported_losing:
                self._changed_reported[key, each] = None
        names = {claim.name if claim is not None else None for claim in (owner, new_owner)}
        return {each for each in names if each is not None} if len(names) > 1 else set()

    def _put(self, key: FrontendKey, claim: Claim) -> None:
        owner, contest = self._owning.get(key), self._contests.get(key)
        if contest is None:
            if owner is None or owner.name == claim.name:
                self._owning[key] = claim
                return
            contest = self._contests[key] = Contest((owner,))
        contest.put(claim)
        self._owning[key] = contest.owner

    def _remove(self, key: FrontendKey, name: ServicePortName) -> None:
        contest = self._contests.get(key)
        if contest is None:
            del self._owning[key]
            return
        contest.remove(name)
        self._owning[key] = contest.owner
        if len(contest) == 1:
            del self._contests[key]

    def _losing_count(self, key: FrontendKey) -> int:
        contest = self._contests.get(key)
        return contest.losing_count if contest is not None else 0

    def owned_by(self, name: ServicePortName) -> tuple[Frontend, ...]:
        """Return the frontends that ``name`` owns, in the order of its claims."""
        claims = self._claims.get(name, ())
        if not self._contests:
            return tuple([claim.frontend for claim in claims])
        return tuple(claim.frontend for claim in claims if self._owning[claim.frontend.key].name == name)

    def losing_claims(self) -> tuple[LosingClaim, ...]:
        """Return all claims to frontends that another Service owns, sorted.

        A claim that loses to another port of the same Service is not returned.
        """
        return _sorted(
            LosingClaim(claim.frontend, claim.name, self._owning[key].name)
            for key, contest in self._contests.items()
            for claim in contest
            if _loses(claim, self._owning[key])
        )

    def take_newly_losing_claims(self) -> tuple[LosingClaim, ...]:
        """Return the claims that began to lose since the last call and still lose, sorted.

        If another Service takes a frontend from several ports of one Service, only the port that owned it is returned.
        """
        taken, self._newly_losing = self._newly_losing, {}
        losing = {(key, name): found for key, name in taken if (found := self._losing_claim(key, name)) is not None}
        self._reported_losing.update(losing)
        return _sorted(losing.values())

    def take_ended_losing_claims(self) -> tuple[LosingClaim, ...]:
        """Return the claims of ``take_newly_losing_claims`` that were withdrawn or won since the last call, sorted.

        A claim is not returned when another port of its Service now owns the frontend, but when it is withdrawn.
        """
        taken, self._changed_reported = self._changed_reported, {}
        ended = [place for place in taken if self._losing_claim(*place) is None]
        return _sorted(self._reported_losing.pop(place) for place in ended)

    def _losing_claim(self, key: FrontendKey, name: ServicePortName) -> LosingClaim | None:
        contest, owner = self._contests.get(key), self._owning.get(key)
        claim = contest.get(name) if contest is not None else None
        if claim is None or owner is None or not _loses(claim, owner):
            return None
        return LosingClaim(claim.frontend, name, owner.name)


def _claims(name: ServicePortName, port: ServicePort) -> dict[FrontendKey, Claim]:
    return {frontend.key: Claim(frontend, name, port.creation_timestamp) for frontend in claimed_frontends(port)}


def _loses(claim: Claim, owner: Claim | None) -> bool:
    """Tell whether a port of another Service owns the frontend."""
    return owner is not None and claim.name.service != owner.name.service


def _sorted(losing: Iterable[LosingClaim]) -> tuple[LosingClaim, ...]:
    return tuple(sorted(losing, key=lambda claim: (claim.loser, str(claim.frontend.key))))
