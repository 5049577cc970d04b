"""The corpus is from the pinned release, and it has cases of each mode."""

import json

import pytest

from deploy.programs.build import MODULE
from tests.upstream.cases import cases
from tests.upstream.dump import PROVENANCE
from tests.upstream.source import MODES


def test_corpus_is_from_pinned_release() -> None:
    found = json.loads(PROVENANCE.read_text())
    pinned = f"{found['module']} {found['version']} {found['checksum']}"
    assert pinned in (MODULE / "go.sum").read_text().splitlines(), "run python -m tests.upstream.dump"


@pytest.mark.parametrize("mode", MODES)
def test_each_mode_has_cases(mode: str) -> None:
    assert len(cases(mode)) >= 50
