"""``python -m tests.soak NAME AMOUNT [SEED]`` runs one soak test; ``make soak`` runs all except ``in-flight``."""

import logging
import random
import sys
from collections.abc import Callable, Mapping

from tests.soak import connections, histories, in_flight, kills, sticky
from tests.support.privilege import ensure_namespaces

SOAK_TESTS: Mapping[str, Callable[[int, int], None]] = {
    "histories": histories.soak,
    "sticky": sticky.soak,
    "connections": connections.soak,
    "kills": kills.soak,
    "in-flight": in_flight.soak,
}
"""The soak tests by name. They take an amount, and a seed that reproduces a failure."""


def main() -> None:
    """Run one soak test."""
    arguments = dict(enumerate(sys.argv[1:]))
    soak = SOAK_TESTS.get(arguments.get(0, ""))
    if soak is None or not arguments.get(1, "").isdigit():
        sys.exit(f"usage: python -m tests.soak {{{','.join(SOAK_TESTS)}}} AMOUNT [SEED]")
    ensure_namespaces()
    # Histories cause thousands of warnings about contested frontends.
    logging.getLogger("knft").setLevel(logging.CRITICAL)
    amount, seed = int(arguments[1]), int(arguments.get(2, random.SystemRandom().randrange(1 << 30)))
    print(f"soak: {arguments[0]} {amount}, seed {seed}", flush=True)
    soak(amount, seed)


if __name__ == "__main__":
    main()
