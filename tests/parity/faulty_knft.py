"""``python -m tests.parity.faulty_knft FAULT ARGUMENTS``: ``knft ARGUMENTS`` with one of the faults of ``faults``."""

import sys

from tests.parity.faults import FAULTS


def main() -> None:
    """Break knft, and run it."""
    FAULTS[sys.argv.pop(1)].apply()
    from knft.cli.main import main as knft

    knft()


if __name__ == "__main__":
    main()
