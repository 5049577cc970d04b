"""Every operator on some clusters: prints a table, and fails where a mutant survives or is named wrong."""

import sys
import time

from tests.interpret.mutation.campaign import KINDS, Mutant, mutants, reasons, rewritten, table, text


def main(clusters: int) -> int:
    """Return the exit status."""
    started = time.process_time()
    results: list[Mutant] = []
    harmless: list[Mutant] = []
    for kind in KINDS:
        results += mutants(kind, range(clusters))
        harmless += rewritten(kind, range(min(clusters, 2)))
        print(f"{kind.name}: {len(results)} mutants so far, {time.process_time() - started:.0f} s of CPU", flush=True)
    print(text(table(results)), "", text(table(harmless)), "", "Equivalent:", *reasons(results), sep="\n")
    failures = [mutant.failure for mutant in (*results, *harmless) if mutant.failure]
    print(*failures, f"{len(failures)} failures", sep="\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 4))
