"""The alerts are those of the documentation, and alerts and dashboard use metrics that knft serves."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.expected_metrics import (
    KNFT_METRICS,
    KUBE_PROXY_METRICS,
    PROCESS_METRICS,
    SERVICE_COUNTER_METRICS,
    ExpectedMetric,
)

CHECKOUT = Path(__file__).parents[2]
FOLDER = CHECKOUT / "deploy" / "kustomize" / "components" / "monitoring"
METRICS = (
    KNFT_METRICS
    | KUBE_PROXY_METRICS
    | SERVICE_COUNTER_METRICS
    | {
        # With --manifests (tests/source).
        "knft_removals_held": ExpectedMetric("gauge"),
        "knft_manifest_files": ExpectedMetric("gauge", ("state",)),
    }
)
LABELS = {"instance", "job", "le", "version", "python"}
"""Labels that Prometheus adds, those of histograms, and those of the build information."""


def _rules() -> list[dict[str, Any]]:
    manifest = yaml.safe_load((FOLDER / "prometheusrule.yaml").read_text())
    (group,) = manifest["spec"]["groups"]
    return list(group["rules"])


def _documented() -> dict[str, tuple[str, str]]:
    """Return the expression and the duration of each alert, by its title in the documentation."""
    found = {}
    for line in (CHECKOUT / "docs/operations/alerts.md").read_text().splitlines():
        row = re.match(r"\| (.+?) \| `(.+?)`(?: for (\d+) min)? \| ", line)
        if row:
            expression = row[2].replace("\\|", "|")
            found[row[1].replace("`", "")] = expression, f"{row[3]}m" if row[3] else ""
    return found


def test_alerts_are_those_of_the_documentation() -> None:
    found = {rule["annotations"]["summary"]: (rule["expr"], rule.get("for", "")) for rule in _rules()}
    assert found == _documented()
    assert len(found) > 10


def test_alerts_have_names_severities_and_remedies() -> None:
    rules = _rules()
    assert len({rule["alert"] for rule in rules}) == len(rules)
    for rule in rules:
        assert re.fullmatch(r"Knft[A-Za-z]+", rule["alert"])
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert rule["annotations"]["description"].startswith("{{ $labels.instance }}: ")
        assert "](" not in rule["annotations"]["description"]


def _dashboard() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text())
    return found


def _expressions() -> Iterator[str]:
    yield from (rule["expr"] for rule in _rules())
    for panel in _dashboard()["panels"]:
        yield from (target["expr"] for target in panel["targets"])


@pytest.mark.parametrize("expression", sorted(set(_expressions())))
def test_each_metric_exists_and_has_the_labels(expression: str) -> None:
    names = re.findall(r"\b((?:knft|kubeproxy|rest_client|process)_\w+)", expression)
    assert names or expression.startswith("up{")
    known = [_metric(name) for name in names]
    labels = {label for metric in known if metric is not None for label in metric.labels} | LABELS
    for group in re.findall(r"by \(([^)]*)\)", expression):
        assert {label.strip() for label in group.split(",")} <= labels
    for selector in re.findall(r"\{([^}]*)\}", expression):
        assert set(re.findall(r"(\w+)=~?\"", selector)) <= labels


def _metric(name: str) -> ExpectedMetric | None:
    """Return a metric, None for one of the process; series of histograms have suffixes."""
    if name in PROCESS_METRICS:
        return None
    histogram = METRICS.get(re.sub(r"_(bucket|count|sum)$", "", name))
    if histogram is not None and histogram.type == "histogram" and name not in METRICS:
        return histogram
    assert METRICS[name].type != "histogram", f"{name} is a histogram: it has no series of that name"
    return METRICS[name]


def test_panels_have_titles_and_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    panels = _dashboard()["panels"]
    assert len({panel["title"] for panel in panels}) == len({panel["id"] for panel in panels}) == len(panels)
    for panel in panels:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert place["x"] + place["w"] <= 24
        assert not taken & cells
        taken |= cells
