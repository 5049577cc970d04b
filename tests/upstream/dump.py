"""Dumps the cases of kube-proxy's unit tests into ``corpus``: ``python -m tests.upstream.dump``.

It copies the source of the pinned release, adds calls that record, and runs the tests with Go. Run it again after
``tests/cluster/go/go.mod`` pins another release.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

from tests.cluster.setup_error import SetupError
from tests.upstream.assemble import documents, format_document
from tests.upstream.source import MODES, Provenance, copy_with_recording, find_module, find_toolchain, run_tests

CORPUS = Path(__file__).with_name("corpus")
PROVENANCE = CORPUS / "provenance.json"


def main() -> None:
    """Dump the cases of all modes."""
    try:
        go = find_toolchain()
        module, provenance = find_module(go)
        with tempfile.TemporaryDirectory() as folder:
            copy_with_recording(module, Path(folder))
            found = {mode: documents(mode, run_tests(go, Path(folder), mode)) for mode in MODES}
    except SetupError as problem:
        sys.exit(f"upstream: {problem}")
    shutil.rmtree(CORPUS, ignore_errors=True)
    for mode, listed in found.items():
        (CORPUS / mode).mkdir(parents=True)
        for document in listed:
            (CORPUS / mode / f"{document['test']}.json").write_text(format_document(document))
        print(f"{mode}: the cases of {len(listed)} tests")
    PROVENANCE.write_text(json.dumps(_provenance(provenance), indent=1) + "\n")


def _provenance(found: Provenance) -> dict[str, str]:
    return {
        **found._asdict(),
        "tests": "pkg/proxy/{iptables,ipvs,nftables}",
        "copyright": "The Kubernetes Authors",
        "licence": "Apache-2.0",
        "command": "python -m tests.upstream.dump",
    }


if __name__ == "__main__":
    main()
