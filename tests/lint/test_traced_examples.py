"""``knft trace`` accepts the examples that ``knft lint --against`` prints, and computes the printed outcomes."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from tests.lint.changes import POD_CIDR, write_change
from tests.support.lint_objects import DUAL, TWO_NODES, endpoint, endpoint_slice, service
from tests.support.lint_reports import invoke, written
from tests.support.traced_cluster import trace

Outcomes = set[tuple[str, str, str, str]]
_ROW = re.compile(r"^  on (.+?)  +(\S.*) → (.*); for example: (.*)$", re.MULTILINE)
_OUTCOME = re.compile(r"(?:is (rejected|dropped)|reaches ([^a-z]+?))(?:, source ([a-z]+))?(?: \((\S+?)(?: each)?\))?")


def _rows(*arguments: str) -> Iterator[tuple[str, ...]]:
    """Yield the nodes, the outcomes before and after, and the example of each row of the text."""
    text = invoke(*arguments, *POD_CIDR).stdout
    rows = _ROW.findall(text)
    assert len(rows) == text.count(" → ") > 0
    yield from rows


def _printed(text: str) -> Outcomes:
    found: Outcomes = set()
    for each in text.split("; "):
        matched = _OUTCOME.fullmatch(each)
        assert matched, each
        fate, endpoints, source, share = matched.groups()
        found |= {
            (fate or "delivered", endpoint, source or "kept", share or "1")
            for endpoint in (endpoints or "").split(", ")
        }
    return found


def _traced(folder: str, flags: str) -> Outcomes:
    """Return the outcomes of an example; ``trace`` asserts that the exit status is 0."""
    (case,) = trace("-f", folder, *POD_CIDR, *shlex.split(flags))["ways"]
    return {(end["fate"], end["endpoint"], end["source"], end["share"]) for end in case["ends"]}


def test_printed_examples_have_the_printed_outcomes(tmp_path: Path) -> None:
    before, after = write_change(tmp_path)
    rows = list(_rows("-f", after, "--against", before))
    assert len({nodes for nodes, *_ in rows}) == 3
    for nodes, *texts, flags in rows:
        assert nodes == "all nodes" or f"--node={nodes} " in flags
        for folder, text in zip((before, after), texts, strict=True):
            assert _traced(folder, flags) == _printed(text), (folder, flags)


def test_example_is_of_the_family_of_its_row(tmp_path: Path) -> None:
    """Each family loses an endpoint on another node, and on the other one the same packets were dropped before."""
    inner = service(**DUAL, internalTrafficPolicy="Local")
    slices = endpoint_slice(endpoint(2)), endpoint_slice(endpoint(1, family="IPv6"), family="IPv6", name="six")
    before = written(tmp_path / "before", inner, *slices, *TWO_NODES)
    after = written(tmp_path / "after", inner, *TWO_NODES)
    rows = [row for row in _rows("-f", after, "--against", before) if row[1:3] == ("is dropped", "is rejected")]
    assert {row[0]: shlex.split(row[3])[-1] for row in rows} == {
        "node-1": "--to=10.96.0.10:80/tcp",
        "node-2": "--to=[fd00:10:96::10]:80/tcp",
    }
    for node, *texts, flags in rows:
        assert flags.startswith(f"--node={node} ")
        assert [_traced(folder, flags) for folder in (before, after)] == [_printed(text) for text in texts]
