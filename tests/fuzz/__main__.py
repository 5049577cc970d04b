"""`python -m tests.fuzz SECONDS [SEED]`: by mutation, and by coverage where atheris is installed (`make fuzz`)."""

import random
import subprocess
import sys
import time
from importlib.util import find_spec

from tests.fuzz.corpus import FINDINGS


def main() -> None:
    """Fuzz for so many seconds; a finding is written to a file, and raised."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 600.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(1 << 30)
    print(f"fuzz: {seconds:.0f} s, seed {seed}", flush=True)
    if find_spec("atheris") is None:
        print("fuzz: without atheris (`pip install .[fuzz]`), so by mutation alone", flush=True)
        print(f"fuzz: {mutate_for(seconds, seed)} inputs by mutation, nothing found")
        return
    # One finds by structure, the other by coverage; each takes half of the time.
    print(f"fuzz: {mutate_for(seconds / 2, seed)} inputs by mutation, nothing found", flush=True)
    coverage = [sys.executable, "-m", "tests.fuzz.coverage", str(int(seconds / 2)), str(seed)]
    sys.exit(subprocess.run(coverage, check=False).returncode)


def mutate_for(seconds: float, seed: int) -> int:
    """Hold mutated files to every promise; return how many there were."""
    from tests.fuzz.corpus import corpus
    from tests.fuzz.mutate import mutated
    from tests.fuzz.target import hold

    chance, seeds, count = random.Random(seed), corpus(), 0  # noqa: S311 - to be had again
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        data = mutated(chance, seeds)
        try:
            hold(data)
        except BaseException:
            _keep(data)
            raise
        count += 1
    return count


def _keep(data: bytes) -> None:
    FINDINGS.mkdir(exist_ok=True)
    path = FINDINGS / f"found-{time.time_ns()}"
    path.write_bytes(data)
    print(f"fuzz: the input is in {path}", flush=True)


if __name__ == "__main__":
    main()
