"""FailingHistory: a random cluster history with refused Services, library crashes and foreign changes."""

from random import Random

from knft.errors import KernelError, LibraryDiedError
from knft.families import Family
from knft.model.objects import Service
from knft.nft.objects import Key
from knft.nft.transaction import Transaction
from knft.render.names import TABLE
from knft.sync.invalidation import Invalidation
from tests.support.history import History, flushable_objects

MAX_FAILURES = 8
"""The most failing commits in a row: enough for each step of recovery (docs/design/index.md), including bisecting."""


FOREIGN_NAMES = ("foreign-", "pool-tcp-", "layout-")
"""The beginnings of the names of foreign objects; some are those of knft's chains."""


class FailingHistory(History):
    """A history with lasting failures."""

    def refuse_cluster_ips(self, rng: Random) -> None:
        """Refuse all transactions about one or two cluster IPs, or let the library crash on them."""
        family = rng.choice(tuple(Family))
        services = [item for item in self._harness.objects.values() if isinstance(item, Service)]
        known = {address for item in services for address in item.spec.cluster_ips or ()}
        addresses = sorted(address for address in known if (":" in address) == (family is Family.IPV6))
        if not addresses:
            return
        bad = set(rng.sample(addresses, rng.randint(1, min(2, len(addresses)))))
        error = rng.choice((KernelError, LibraryDiedError))
        self._log_step(f"refuse {family.value} {sorted(bad)}: {error.__name__}")

        def refuse(transaction: Transaction) -> None:
            if any(bad.intersection(key) for key in _keys(transaction)):
                msg = "refused for the test"
                raise error(msg)

        self._harness.checked_tables[family].on_commit = refuse
        self._is_settled = False

    def stop_refusing(self, _: Random) -> None:
        """Stop all failures."""
        self._log_step("stop refusing")
        for port in self._harness.checked_tables.values():
            port.stop_failing()

    def fail_repeatedly(self, rng: Random) -> None:
        """Let several commits in a row fail."""
        family = rng.choice(tuple(Family))
        failure, times = (
            rng.choice(("refused_commits", "misreported_commits", "crashes_after_commit", "crashes_before_commit")),
            rng.randint(1, MAX_FAILURES),
        )
        self._log_step(f"fail {times} times {family.value}: {failure}")
        setattr(self._harness.checked_tables[family], failure, times)
        self._is_settled = False

    def change_table_while_monitored(self, rng: Random) -> None:
        """Let another program flush a part of the table or delete the table, while knft is notified."""
        family = rng.choice(tuple(Family))
        listing = self._harness.tables[family].read()
        if listing is None:
            return
        verb, _, name = rng.choice(rng.choice(flushable_objects(listing))).partition(" ")
        command = f"flush {verb} {family.nft} {TABLE} {name}"
        if rng.random() < 0.1:
            command = f"delete table {family.nft} {TABLE}"
        self._foreign_change(family, command)

    def delete_layout_marker(self, rng: Random) -> None:
        """Let another program delete the chain that marks the table's layout for old versions of knft."""
        family = rng.choice(tuple(Family))
        listing = self._harness.tables[family].read()
        for name in listing.rule_counts if listing is not None else ():
            if name.startswith("layout-"):
                self._foreign_change(family, f"delete chain {family.nft} {TABLE} {name}")

    def add_foreign_objects(self, rng: Random) -> None:
        """Let another program add chains, a set, a map and a counter, which refer to each other and to knft's."""
        family = rng.choice(tuple(Family))
        listing = self._harness.tables[family].read()
        if listing is None or not listing.rule_counts:
            return
        name = f"{rng.choice(FOREIGN_NAMES)}{rng.randrange(1000, 10**6)}"
        self._foreign_names.add(name)
        hook = rng.choice(("", "{ type filter hook forward priority 3; policy drop; }"))
        chain = rng.choice(sorted(listing.rule_counts))
        table = f"{family.nft} {TABLE}"
        commands = (
            f"add chain {table} leaf-{name}",
            f"add chain {table} {name} {hook}",
            f"add set {table} {name} {{ type inet_service; elements = {{ 80 }}; }}",
            f"add map {table} {name}-map {{ type mark : verdict; elements = {{ 1 : jump leaf-{name} }}; }}",
            f"add counter {table} {name}",
            f"add rule {table} {name} meta mark vmap @{name}-map",
            f"add rule {table} {chain} tcp dport @{name} counter name {name} jump leaf-{name}",
        )
        self._foreign_change(family, "\n".join(commands))

    def _foreign_change(self, family: Family, command: str) -> None:
        self._log_step(f"another program runs: {command}")
        self._run_foreign_commands(command)
        self._harness.proxiers[family].invalidate(Invalidation(declarations=True))
        self._is_settled = False


def _keys(transaction: Transaction) -> list[Key]:
    removed = [key for keys in transaction.removed.values() for key in keys]
    return removed + [key for added in transaction.added.values() for key in added]
