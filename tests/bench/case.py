"""``python -m tests.bench.case JSON`` measures one case in this process, and prints records."""

import subprocess
import sys

import msgspec
from msgspec import Struct

from tests.bench.cluster import Shape
from tests.bench.knft import measure_bare_commit, measure_knft
from tests.bench.latency import Ruleset, measure_latency
from tests.bench.peer import Limits, measure_peer
from tests.bench.peers.program import ProgramTimeout
from tests.bench.peers.registry import PEERS
from tests.bench.record import BARE, ENDED, KNFT, LATENCY, Record, emit
from tests.support.lab.namespace import Namespace
from tests.support.processes import die_with_parent


class Case(Struct, frozen=True):
    """A proxy and a cluster, with the number of ``syncs`` of each kind of change.

    A peer stops each kind of change after ``seconds``. Kernel memory has ``settle_seconds`` to settle. The latency case
    makes ``dials`` connections to each frontend of ``rulesets``. ``profile`` is a directory for knft's profile.
    """

    proxy: str
    shape: Shape
    syncs: int = 0
    seconds: float = 0.0
    dials: int = 0
    rulesets: tuple[Ruleset, ...] = ()
    settle_seconds: float = 5.0
    profile: str = ""


def _measure(case: Case) -> None:
    if case.proxy == LATENCY:
        measure_latency(case.rulesets, case.dials)
        return
    namespace = Namespace.create("bench")
    with namespace.entered():
        match case.proxy:
            case str(proxy) if proxy == KNFT:
                measure_knft(case.shape, case.syncs, case.settle_seconds, case.profile)
            case str(proxy) if proxy == BARE:
                measure_bare_commit(case.shape)
            case peer:
                measure_peer(peer, PEERS[peer], case.shape, Limits(case.syncs, case.seconds, case.settle_seconds))
    namespace.close()


def main(text: str) -> None:
    """Measure; a program that fails or times out is a record too."""
    die_with_parent()
    case = msgspec.json.decode(text, type=Case)
    try:
        _measure(case)
    except KeyboardInterrupt:
        sys.exit(130)  # The parent is interrupted too, and reports it.
    except ProgramTimeout as outcome:
        emit(Record(case.proxy, case.shape.name, ENDED, note=str(outcome)))
    except subprocess.CalledProcessError as error:
        emit(Record(case.proxy, case.shape.name, ENDED, note=f"failed: {str(error.stderr).strip()[:200]}"))


if __name__ == "__main__":
    main(sys.argv[1])
