"""Dumps the cases of kube-proxy's unit tests into ``corpus``: ``python -m tests.upstream.dump``.

It copies the source of the pinned release, adds calls that record, and runs the tests with Go. Run it again after
``deploy/programs/kubernetes/go.mod`` pins another release.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

from deploy.programs.errors import SetupError
from tests.upstream.assemble import documents, format_document, topology_document
from tests.upstream.source import (
    MODES,
    TOPOLOGY,
    Provenance,
    copy_with_recording,
    find_module,
    find_toolchain,
    run_tests,
)

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
            found[TOPOLOGY] = [topology_document(run_tests(go, Path(folder), TOPOLOGY))]
    except SetupError as problem:
        sys.exit(f"upstream: {problem}")
    texts = {
        CORPUS / mode / f"{document['test']}.json": format_document(document)
        for mode, listed in found.items()
        for document in listed
    }
    texts[PROVENANCE] = json.dumps(_provenance(provenance), indent=1) + "\n"
    shutil.rmtree(CORPUS, ignore_errors=True)
    for path, text in texts.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    print(", ".join(f"{mode}: {len(listed)} tests" for mode, listed in found.items()))


def _provenance(found: Provenance) -> dict[str, str]:
    return {
        **found._asdict(),
        "tests": "pkg/proxy/{iptables,ipvs,nftables}, pkg/proxy/topology_test.go",
        "copyright": "The Kubernetes Authors",
        "licence": "Apache-2.0",
        "command": "python -m tests.upstream.dump",
    }


if __name__ == "__main__":
    main()
