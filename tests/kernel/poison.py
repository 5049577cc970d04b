"""What tests of refusals share: many Services, somebody who has one refused, and a clock that stands still."""

from collections.abc import Callable

from knft.errors import KernelError
from knft.nft.transaction import Transaction
from tests.kernel.harness import KernelHarness, service, slices

COUNT = 40


class Clock:
    """Seconds, as the test says."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def many(harness: KernelHarness) -> None:
    """Have so many Services served from the next sync on, each at the address of its number."""
    harness.sync()  # The table is there.
    for number in range(1, COUNT + 1):
        harness.apply(service(f"web-{number}", number), *slices(f"web-{number}", [number, number + 100]))


def refusing(address: str, error: type[KernelError] = KernelError) -> Callable[[Transaction], None]:
    """Return somebody who has every transaction refused that is about this address."""

    def meddle(transaction: Transaction) -> None:
        keys = [key for keys in transaction.removed.values() for key in keys]
        keys += [key for added in transaction.added.values() for key in added]
        if any(address in key for key in keys):
            msg = "poison"
            raise error(msg)

    return meddle
