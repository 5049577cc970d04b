"""The seeds of fuzzing: the examples, the scenarios in both families, the broken files, and earlier findings."""

import json
from pathlib import Path

from tests.support import fast_yaml
from tests.support.broken_files import BROKEN, READABLE
from tests.support.scenario import read_scenarios

ROOT = Path(__file__).parent.parent.parent
FINDINGS = Path(__file__).parent / "findings"
"""Inputs that once failed. All of them have been fixed."""
MAX_BYTES = 20_000


def corpus() -> list[bytes]:
    """Return whole files as YAML and as JSON, and single objects, each of at most MAX_BYTES."""
    files = [path.read_bytes() for path in sorted((ROOT / "examples").glob("*.yaml"))]
    for scenario in read_scenarios():
        files.append(fast_yaml.dump_all(scenario.manifests()).encode())
        files += [fast_yaml.dump_all([item], default_flow_style=None).encode() for item in scenario.manifests()]
        files.append(json.dumps({"apiVersion": "v1", "kind": "List", "items": scenario.manifests()}).encode())
    files += [data for data, _ in BROKEN.values()] + list(READABLE.values())
    files += [path.read_bytes() for path in sorted(FINDINGS.iterdir())] if FINDINGS.is_dir() else []
    return [data for data in dict.fromkeys(files) if len(data) <= MAX_BYTES]
