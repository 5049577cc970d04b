"""The check of configuration files without jsonschema: it accepts only valid files, and the deployed ones."""

import copy
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from knft.configuration.schema import schema
from knft.configuration.schema_match import matches
from tests.configuration.strategies import CONFIGURATIONS
from tests.support.loaded_settings import KUBEADM, config_with_paths

SCHEMA = schema()
VALIDATOR = Draft202012Validator(SCHEMA)
ROOT = Path(__file__).parents[2]
DEPLOYED = (KUBEADM, *(ROOT / "deploy").glob("**/config.yaml"))
DOCUMENTS: st.SearchStrategy[Any] = CONFIGURATIONS.map(lambda paths: yaml.safe_load(config_with_paths(paths)))
WRONG: st.SearchStrategy[Any] = st.sampled_from(
    [None, True, 0, -1, 1.0, 1.5, 1 << 40, "", "x", "1s", "4Ki", [], ["x"], [None], {}, {"x": 1}, {"X": True}]
)


@st.composite
def _changed(draw: st.DrawFn) -> Any:
    """Draw a valid document, in which up to two values are replaced or added."""
    document: Any = draw(DOCUMENTS)
    for _ in range(draw(st.integers(0, 2))):
        place = document
        while True:
            names = sorted(place) if isinstance(place, dict) else list(range(len(place)))
            name = draw(st.sampled_from([*names, "unknown"] if isinstance(place, dict) else names))
            inner = place[name] if name in names else None
            if not isinstance(inner, dict | list) or not inner or draw(st.booleans()):
                place[name] = copy.deepcopy(draw(WRONG))
                break
            place = inner
    return document


@given(_changed())
def test_accepted_documents_are_valid(document: Any) -> None:
    assert not matches(document, SCHEMA) or VALIDATOR.is_valid(document)


@given(DOCUMENTS)
def test_valid_documents_are_accepted(document: Any) -> None:
    assert matches(document, SCHEMA)


def test_unknown_keywords_are_not_accepted() -> None:
    assert matches({}, {"type": "object"})
    assert not matches({}, {"type": "object", "minProperties": 0})


@pytest.mark.parametrize("path", DEPLOYED, ids=lambda path: str(path.relative_to(ROOT)))
def test_deployed_files_need_no_jsonschema(path: Path) -> None:
    assert matches(yaml.safe_load(path.read_text()), SCHEMA)
    code = (
        "import sys; from knft.configuration.file_parsing import parse_file; "
        f"assert not parse_file('x', open({str(path)!r}, 'rb').read()).errors; "
        "assert 'jsonschema' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    "paths",
    [
        {"configSyncPeriod": "soon"},
        {"bindAddress": 7},
        {"oomScoreAdj": 1 << 40},
        {"oomScoreAdj": -(1 << 40)},
        {"oomScoreAdj": True},
        {"nodePortAddresses": [7]},
        {"featureGates": {"AllAlpha": "yes"}},
        {"conntrack": {"unknown": 1}},
        {"kind": "Other"},
    ],
    ids=str,
)
def test_wrong_values_are_not_accepted(paths: dict[str, Any]) -> None:
    document = yaml.safe_load(config_with_paths({})) | paths
    assert not VALIDATOR.is_valid(document)
    assert not matches(document, SCHEMA)
