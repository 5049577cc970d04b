"""`python -m tests.fuzz.coverage SECONDS SEED`: atheris, in a process of its own, for it instruments imports."""

import sys
import tempfile
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["knft"]):
    from tests.fuzz.target import hold

from tests.fuzz.corpus import FINDINGS, corpus


def main() -> None:
    """Fuzz for so many seconds; a finding is left in a file, and the process fails."""
    seconds, seed = int(sys.argv[1]), int(sys.argv[2])
    FINDINGS.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        for number, data in enumerate(corpus()):
            Path(folder, f"{number:04}").write_bytes(data)
        limits = ["-max_len=20000", "-timeout=30", "-rss_limit_mb=2048"]
        flags = [f"-max_total_time={seconds}", f"-seed={seed or 1}", f"-artifact_prefix={FINDINGS}/", *limits]
        atheris.Setup([sys.argv[0], *flags, folder], hold)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
