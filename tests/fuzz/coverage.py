"""`python -m tests.fuzz.coverage SECONDS SEED`: fuzzing guided by coverage.

It runs in its own process because atheris instruments imports.
"""

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["knft"]):
    from tests.fuzz.target import check_input

from tests.fuzz.corpus import FINDINGS, corpus


def main() -> None:
    """Fuzz for SECONDS; atheris writes an input that fails to a file, and exits with an error."""
    seconds, seed = int(sys.argv[1]), int(sys.argv[2])
    FINDINGS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for number, data in enumerate(corpus()):
            Path(folder, f"{number:04}").write_bytes(data)
        limits = ["-max_len=20000", "-timeout=30", "-rss_limit_mb=2048"]
        flags = [f"-max_total_time={seconds}", f"-seed={seed or 1}", f"-artifact_prefix={FINDINGS}/", *limits]
        atheris.Setup([sys.argv[0], *flags, folder], check_input)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
