"""`python -m tests.fuzz SECONDS [SEED]`: by mutation, and guided by coverage if atheris is installed (`make fuzz`)."""

import math
import random
import subprocess
import sys
import time
from importlib.util import find_spec

from tests.fuzz.corpus import FINDINGS


def main() -> None:
    """Fuzz for SECONDS; write an input that fails to a file and raise its error."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 600.0
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.SystemRandom().randrange(1 << 30)
    print(f"fuzz: {seconds:.0f} s, seed {seed}", flush=True)
    if find_spec("atheris") is None:
        print("fuzz: atheris is not installed (`pip install .[fuzz]`); fuzzing by mutation only", flush=True)
        print(f"fuzz: {fuzz_by_mutation(seed, seconds=seconds)} mutated inputs, no failures")
        return
    # Each fuzzer gets half of the time: one knows the structure of manifests, the other the covered code.
    print(f"fuzz: {fuzz_by_mutation(seed, seconds=seconds / 2)} mutated inputs, no failures", flush=True)
    coverage = [sys.executable, "-m", "tests.fuzz.coverage", str(int(seconds / 2)), str(seed)]
    sys.exit(subprocess.run(coverage, check=False).returncode)


def fuzz_by_mutation(seed: int, *, inputs: float = math.inf, seconds: float = math.inf) -> int:
    """Check a number of mutated inputs, or as many as fit into a time; return their number."""
    from tests.fuzz.corpus import corpus
    from tests.fuzz.mutate import mutate
    from tests.fuzz.target import check_input

    rng, seeds, count = random.Random(seed), corpus(), 0  # noqa: S311 - reproducible
    deadline = time.monotonic() + seconds
    while count < inputs and time.monotonic() < deadline:
        data = mutate(rng, seeds)
        try:
            check_input(data)
        except BaseException:
            _save_finding(data)
            raise
        count += 1
    return count


def _save_finding(data: bytes) -> None:
    FINDINGS.mkdir(exist_ok=True)
    path = FINDINGS / f"finding-{time.time_ns()}"
    path.write_bytes(data)
    print(f"fuzz: wrote the failing input to {path}", flush=True)


if __name__ == "__main__":
    main()
