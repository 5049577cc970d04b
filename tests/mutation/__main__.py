"""Applies all operators to some clusters; fails if a mutant survives or its Service is not named."""

import sys
import time

from tests.mutation.campaign import (
    TARGETS,
    Mutant,
    apply_rewrites,
    equivalence_reasons,
    format_table,
    make_mutants,
    summarise,
)


def main(clusters: int) -> int:
    """Return the exit status."""
    started = time.process_time()
    results: list[Mutant] = []
    harmless: list[Mutant] = []
    for kind in TARGETS:
        results += make_mutants(kind, range(clusters))
        harmless += apply_rewrites(kind, range(min(clusters, 2)))
        print(f"{kind.name}: {len(results)} mutants so far, {time.process_time() - started:.0f} s of CPU", flush=True)
    print(
        format_table(summarise(results)),
        "",
        format_table(summarise(harmless)),
        "",
        "Equivalent:",
        *equivalence_reasons(results),
        sep="\n",
    )
    failures = [mutant.failure for mutant in (*results, *harmless) if mutant.failure]
    print(*failures, f"{len(failures)} failures", sep="\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 4))
