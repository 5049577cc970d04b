"""The sizes of clusters, and how often each measurement is repeated."""

import re

from msgspec import Struct

_NAME = re.compile(r"([1-9]\d*)x([1-9]\d*)")
MAX_SERVICES = 50_000
"""``numbered_endpoints`` has addresses for at most this number of Services."""


class Size(Struct, frozen=True, order=True):
    """A number of Services, and the number of endpoints of each."""

    services: int
    endpoints: int

    @property
    def name(self) -> str:
        """Its name, such as ``1000x10``."""
        return f"{self.services}x{self.endpoints}"


def size_named(name: str) -> Size:
    """Return the size with a name such as ``1000x10``; raise ValueError if it is no such name."""
    match = _NAME.fullmatch(name)
    if match is None:
        msg = f"expected SERVICESxENDPOINTS, such as 1000x10, not {name!r}"
        raise ValueError(msg)
    size = Size(int(match[1]), int(match[2]))
    if size.services > MAX_SERVICES:
        msg = f"at most {MAX_SERVICES} Services are possible, not {size.services}"
        raise ValueError(msg)
    return size


class Repetitions(Struct, frozen=True):
    """How often something is measured: at most ``most`` times, and no more after ``seconds``, but ``least`` times."""

    most: int
    seconds: float
    least: int = 1

    def is_enough(self, samples: int, seconds: float) -> bool:
        """Tell whether this number of samples, measured in ``seconds``, is enough."""
        return samples >= self.most or (samples >= self.least and seconds >= self.seconds)


class BenchPlan(Struct, frozen=True):
    """The repetitions of each measurement.

    A proxy that is not ready after ``ready_seconds`` is not measured further. ``connections`` is the number of
    connections to Services spread over the cluster.
    """

    starts: Repetitions = Repetitions(3, 45.0)
    changes: Repetitions = Repetitions(25, 120.0, least=5)
    bulks: Repetitions = Repetitions(3, 30.0)
    restarts: Repetitions = Repetitions(3, 45.0)
    ready_seconds: float = 900.0
    connections: int = 2000


QUICK = BenchPlan(
    starts=Repetitions(1, 0.0),
    changes=Repetitions(2, 0.0, least=2),
    bulks=Repetitions(1, 0.0),
    restarts=Repetitions(1, 0.0),
    connections=100,
)
