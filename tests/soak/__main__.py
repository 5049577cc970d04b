"""`python -m tests.soak LANE AMOUNT [SEED]`: one lane, for so many steps (`make soak`)."""

import logging
import random
import sys
from collections.abc import Callable, Mapping

from tests.soak import connections, histories, in_flight, kills
from tests.support.privilege import ensure_namespaces

LANES: Mapping[str, Callable[[int, int], None]] = {
    "histories": histories.soak,
    "connections": connections.soak,
    "kills": kills.soak,
    "in-flight": in_flight.soak,
}
"""What there is, by name; it takes how much, and a seed by which a failure can be had again."""


def main() -> None:
    """Run a lane."""
    arguments = dict(enumerate(sys.argv[1:]))
    lane = LANES.get(arguments.get(0, ""))
    if lane is None or not arguments.get(1, "").isdigit():
        sys.exit(f"usage: python -m tests.soak {{{','.join(LANES)}}} AMOUNT [SEED]")
    ensure_namespaces()
    logging.getLogger("knft").setLevel(logging.CRITICAL)  # Frontends that are lost by the thousand, on purpose.
    amount, seed = int(arguments[1]), int(arguments.get(2, random.SystemRandom().randrange(1 << 30)))
    print(f"soak: {arguments[0]} {amount}, seed {seed}", flush=True)
    lane(amount, seed)


if __name__ == "__main__":
    main()
