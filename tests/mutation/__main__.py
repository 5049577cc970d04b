"""Applies all operators to some clusters; fails if the comparison misses a mutant or does not name its Service."""

import sys
import time

from tests.mutation.campaign import (
    MUTATED_MODES,
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
    rewritten: list[Mutant] = []
    for mutated_mode in MUTATED_MODES:
        results += make_mutants(mutated_mode, range(clusters))
        rewritten += apply_rewrites(mutated_mode, range(min(clusters, 2)))
        print(
            f"{mutated_mode.name}: {len(results)} mutants so far, {time.process_time() - started:.0f} s of CPU",
            flush=True,
        )
    print(
        format_table(summarise(results)),
        "",
        format_table(summarise(rewritten)),
        "",
        "Equivalent:",
        *equivalence_reasons(results),
        sep="\n",
    )
    failures = [mutant.failure for mutant in (*results, *rewritten) if mutant.failure]
    print(*failures, f"{len(failures)} failures", sep="\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 3))
