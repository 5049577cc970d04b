"""Helpers for tests of refused transactions: many Services, and a refusal for one address."""

from collections.abc import Callable

from knft.errors import KernelError
from knft.nft.transaction import Transaction
from tests.support.kernel_harness import KernelHarness, service, slices

SERVICE_COUNT = 40


def apply_many_services(harness: KernelHarness) -> None:
    """Apply SERVICE_COUNT Services for the next sync; the number of each is the last part of its cluster IP."""
    harness.sync()  # Creates the table.
    for number in range(1, SERVICE_COUNT + 1):
        harness.apply(service(f"web-{number}", number), *slices(f"web-{number}", [number, number + 100]))


def refuse_address(address: str, error: type[KernelError] = KernelError) -> Callable[[Transaction], None]:
    """Return a commit hook that refuses each transaction with a key that contains ``address``."""

    def refuse(transaction: Transaction) -> None:
        keys = [key for keys in transaction.removed.values() for key in keys]
        keys += [key for added in transaction.added.values() for key in added]
        if any(address in key for key in keys):
            msg = "refused for the test"
            raise error(msg)

    return refuse
