"""``python -m tests.bench.case JSON``: measures one case in this process, and prints records."""

import ctypes
import signal
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

_PR_SET_PDEATHSIG = 1


class Case(Struct, frozen=True):
    """Which proxy, on which cluster, with so many ``syncs`` of each kind of change.

    A peer ends each kind of change after ``seconds``; kernel memory is given ``patience`` seconds to settle. For
    latency, there are so many ``dials`` to each frontend of ``rulesets``. ``profile`` is a folder for knft's profile.
    """

    proxy: str
    shape: Shape
    syncs: int = 0
    seconds: float = 0.0
    dials: int = 0
    rulesets: tuple[Ruleset, ...] = ()
    patience: float = 5.0
    profile: str = ""


def _measure(case: Case) -> None:
    if case.proxy == LATENCY:
        measure_latency(case.rulesets, case.dials)
        return
    namespace = Namespace.create("bench")
    with namespace.entered():
        match case.proxy:
            case str(proxy) if proxy == KNFT:
                measure_knft(case.shape, case.syncs, case.patience, case.profile)
            case str(proxy) if proxy == BARE:
                measure_bare_commit(case.shape)
            case peer:
                measure_peer(peer, PEERS[peer], case.shape, Limits(case.syncs, case.seconds, case.patience))
    namespace.close()


def main(text: str) -> None:
    """Measure; what a program refused or did not end is a record too."""
    # The parent may be killed: nobody shall go on measuring for nobody.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    case = msgspec.json.decode(text, type=Case)
    try:
        _measure(case)
    except KeyboardInterrupt:
        sys.exit(130)  # The parent, which is interrupted too, says so.
    except ProgramTimeout as outcome:
        emit(Record(case.proxy, case.shape.name, ENDED, note=str(outcome)))
    except subprocess.CalledProcessError as error:
        emit(Record(case.proxy, case.shape.name, ENDED, note=f"failed: {str(error.stderr).strip()[:200]}"))


if __name__ == "__main__":
    main(sys.argv[1])
