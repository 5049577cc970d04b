"""HardHistory: a cluster's life with poisonous Services, a library that dies, and others who meddle while knft runs."""

from random import Random

from knft.errors import KernelError, LibraryDiedError
from knft.model.names import Family
from knft.model.objects import Service
from knft.nft.objects import Key
from knft.nft.transaction import Transaction
from knft.render.names import NFT_FAMILIES, TABLE
from knft.sync.doubts import Doubt
from tests.kernel.history import History, damageable

MOST_FAILURES = 8
"""In a row: a comparison, another one, the foundation alone, a replacement, and halving."""


class HardHistory(History):
    """A history with failures that last."""

    def poison(self, chance: Random) -> None:
        """Have all refused that is about one cluster IP, or two; or have the library die of it."""
        family = chance.choice(tuple(Family))
        services = [item for item in self._harness.objects.values() if isinstance(item, Service)]
        known = {address for item in services for address in item.spec.cluster_ips or ()}
        addresses = sorted(address for address in known if (":" in address) == (family is Family.IPV6))
        if not addresses:
            return
        bad = set(chance.sample(addresses, chance.randint(1, min(2, len(addresses)))))
        error = chance.choice((KernelError, LibraryDiedError))
        self._happens(f"poison {family.value} {sorted(bad)}: {error.__name__}")

        def refuse(transaction: Transaction) -> None:
            if any(bad.intersection(key) for key in _keys(transaction)):
                msg = "poison for the test"
                raise error(msg)

        self._harness.ports[family].meddle = refuse
        self._quiet = False

    def unpoison(self, _: Random) -> None:
        """Have nothing refused any more."""
        self._happens("unpoison")
        for port in self._harness.ports.values():
            port.heal()

    def fail_hard(self, chance: Random) -> None:
        """Have several commits in a row fail."""
        family = chance.choice(tuple(Family))
        way, times = chance.choice(("refuse", "deceive", "die_after", "die_before")), chance.randint(1, MOST_FAILURES)
        self._happens(f"fail {times} times {family.value}: {way}")
        setattr(self._harness.ports[family], way, times)
        self._quiet = False

    def damage_live(self, chance: Random) -> None:
        """Have somebody flush a part of a table, or delete it, while knft hears of it."""
        family = chance.choice(tuple(Family))
        listing = self._harness.tables[family].read()
        if listing is None:
            return
        verb, _, name = chance.choice(chance.choice(damageable(listing))).partition(" ")
        command = f"flush {verb} {NFT_FAMILIES[family]} {TABLE} {name}"
        if chance.random() < 0.1:
            command = f"delete table {NFT_FAMILIES[family]} {TABLE}"
        self._meddle(family, command, frozenset({name} if verb == "chain" else ()))

    def forget_layout(self, chance: Random) -> None:
        """Have somebody delete the mark of the table's layout: it is replaced."""
        family = chance.choice(tuple(Family))
        listing = self._harness.tables[family].read()
        for name in listing.chains if listing is not None else ():
            if name.startswith("layout-"):
                self._meddle(family, f"delete chain {NFT_FAMILIES[family]} {TABLE} {name}", frozenset({name}))

    def _meddle(self, family: Family, command: str, chains: frozenset[str]) -> None:
        self._happens(f"somebody does: {command}")
        self._somebody_does(command)
        self._harness.proxiers[family].doubt(Doubt(chains, declarations=True))
        self._quiet = False


def _keys(transaction: Transaction) -> list[Key]:
    removed = [key for keys in transaction.removed.values() for key in keys]
    return removed + [key for added in transaction.added.values() for key in added]
