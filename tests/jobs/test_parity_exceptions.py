"""The exceptions of ``tests.parity``: which metrics and conntrack entries need one, and what the docs list."""

from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.cluster.kube_proxy import Mode
from tests.parity.compare_flows import Flow, Prediction, flows_of, predicted
from tests.parity.compare_servers import Metric, metric_differences
from tests.parity.exceptions import (
    BOTH_MODES,
    CONNTRACK,
    EVENT_ORDER,
    ONLY_KNFT,
    ONLY_KUBE_PROXY,
    OTHER_HOST,
    SCALED_TO_ZERO,
    SERVICE_REMOVED,
    ConntrackException,
    ExceptionUses,
    conntrack_table,
    metric_table,
)
from tests.parity.random_cluster import Cluster, Endpoint, Service, Settings, Slice, random_history

DEFAULT_SEEDS = range(1, 6)
_DOCS = Path(__file__).parents[2] / "docs"


# Metrics


def _metrics(*names: str) -> dict[str, Metric]:
    return {name: Metric("gauge", frozenset(), frozenset({name}), frozenset()) for name in names}


def _uses_of_all_exceptions() -> ExceptionUses:
    uses = ExceptionUses()
    for mode in BOTH_MODES:
        theirs, ours = (
            _metrics(*(pattern.replace("*", "some_") for one in side if mode in one.modes for pattern in one.patterns))
            for side in (ONLY_KUBE_PROXY, ONLY_KNFT)
        )
        assert metric_differences(theirs, ours, mode, uses) == []
    for exception in CONNTRACK.values():
        uses.count_entry(exception)
    return uses


def test_all_used_exceptions_leave_nothing_unused() -> None:
    assert _uses_of_all_exceptions().unused() == []


def test_exceptions_that_nothing_needs_are_named() -> None:
    found = ExceptionUses().unused()
    assert "metric go_* beside mode nftables" in found
    assert "metric go_* beside mode iptables" in found
    assert "metric kubeproxy_*iptables_* beside mode iptables" in found
    assert "metric kubeproxy_*iptables_* beside mode nftables" not in found
    assert "conntrack entry: scaled to zero" in found


def test_metric_of_both_sides_does_not_use_an_exception() -> None:
    uses = ExceptionUses()
    assert metric_differences(_metrics("go_threads"), _metrics("go_threads"), "nftables", uses) == []
    assert "metric go_* beside mode nftables" in uses.unused()


@pytest.mark.parametrize(
    ("theirs", "ours", "mode", "problem"),
    [
        ("kubeproxy_new", "", "nftables", "only kube-proxy in mode nftables has the metric kubeproxy_new"),
        ("", "kubeproxy_new", "iptables", "only knft has the metric kubeproxy_new, not kube-proxy in mode iptables"),
        (
            "kubeproxy_sync_proxy_rules_iptables_last",
            "",
            "nftables",
            "only kube-proxy in mode nftables has the metric kubeproxy_sync_proxy_rules_iptables_last",
        ),
        ("kubeproxy_sync_proxy_rules_iptables_last", "", "iptables", None),
        ("", "knft_new", "iptables", None),
    ],
)
def test_metric_of_one_side_differs_unless_an_exception_of_the_mode_covers_it(
    theirs: str, ours: str, mode: Mode, problem: str | None
) -> None:
    found = metric_differences(
        _metrics(*filter(None, (theirs,))), _metrics(*filter(None, (ours,))), mode, ExceptionUses()
    )
    assert found == ([problem] if problem else [])


def test_metric_with_other_labels_differs() -> None:
    ours = {"a": Metric("gauge", frozenset({"code"}), frozenset({"a"}), frozenset())}
    (problem,) = metric_differences(_metrics("a"), ours, "nftables", ExceptionUses())
    assert problem.startswith("metric a: ")


@pytest.mark.parametrize("exceptions", [ONLY_KUBE_PROXY, ONLY_KNFT])
def test_docs_list_the_exceptions_of_metrics(exceptions: Sequence[Any]) -> None:
    table = "\n".join(metric_table(exceptions))
    assert f"\n\n{table}\n" in (_DOCS / "operations/metrics.md").read_text()


# Conntrack


def _with_endpoints(*hosts: str, serving: Iterable[str] = (), **fields: Any) -> Service:
    """Return a UDP Service with one slice for each host; hosts that are not in ``serving`` stop if that is given."""
    slices = tuple(
        Slice("IPv4", 8080, ("dns",), (Endpoint(host, serving=not serving or host in serving),)) for host in hosts
    )
    return replace(Service(1, "NodePort", families=("IPv4",), ports=("dns",), slices=slices), **fields)


def _flow(service: Service, number: int = 0) -> Flow:
    """Return an entry of the first endpoint to the cluster IP."""
    return list(flows_of(Cluster((service,)), Settings()).values())[number]


_ONE, _TWO = _with_endpoints("local-1"), _with_endpoints("local-1", "local-2")


@pytest.mark.parametrize(
    ("before", "after", "kube_proxy", "knft", "exception"),
    [
        pytest.param(_TWO, _TWO, "keeps", "keeps", None, id="no change"),
        pytest.param(
            _TWO, replace(_TWO, slices=_TWO.slices[1:] * 2), "deletes", "deletes", None, id="endpoint removed"
        ),
        pytest.param(_ONE, replace(_ONE, slices=()), "keeps", "deletes", SCALED_TO_ZERO, id="scaled to zero"),
        pytest.param(
            _TWO,
            replace(_TWO, slices=()),
            "keeps or deletes",
            "deletes",
            EVENT_ORDER,
            id="two slices, scaled to zero one after the other",
        ),
        pytest.param(_TWO, None, "keeps or deletes", "deletes", EVENT_ORDER, id="two slices and their Service deleted"),
        pytest.param(_ONE, None, "keeps", "deletes", SERVICE_REMOVED, id="Service deleted"),
        pytest.param(
            _ONE, replace(_ONE, type="ExternalName"), "keeps", "deletes", SERVICE_REMOVED, id="no cluster IP any more"
        ),
        pytest.param(_ONE, replace(_ONE, ports=("http",)), "keeps", "deletes", SERVICE_REMOVED, id="port deleted"),
        pytest.param(
            _TWO,
            replace(_TWO, slices=_TWO.slices[::-1]),
            "keeps or deletes",
            "keeps or deletes",
            EVENT_ORDER,
            id="endpoint in another slice",
        ),
        pytest.param(
            _ONE,
            replace(_ONE, families=("IPv4", "IPv6")),
            "keeps",
            "keeps or deletes",
            EVENT_ORDER,
            id="Service recreated with another family",
        ),
    ],
)
def test_prediction_for_an_entry_of_the_cluster_ip(
    before: Service, after: Service | None, kube_proxy: str, knft: str, exception: ConntrackException | None
) -> None:
    assert predicted(_flow(before), before, after, Settings()) == Prediction(kube_proxy, knft, exception)  # type: ignore[arg-type]


def test_prediction_for_an_entry_of_an_external_ip_that_the_service_loses() -> None:
    before = replace(_ONE, has_external_ips=True)
    flow = next(
        flow for flow in flows_of(Cluster((before,)), Settings()).values() if flow.frontend[0].startswith("203.")
    )
    assert predicted(flow, before, _ONE, Settings()) == Prediction("keeps", "keeps")


@pytest.mark.parametrize(
    ("after", "prediction"),
    [
        (_ONE, Prediction("deletes", "keeps", OTHER_HOST)),
        (replace(_ONE, type="ClusterIP"), Prediction("keeps or deletes", "keeps", EVENT_ORDER)),
        (None, Prediction("keeps or deletes", "keeps", EVENT_ORDER)),
    ],
)
def test_prediction_for_an_entry_to_another_host(after: Service | None, prediction: Prediction) -> None:
    flow = _flow(_ONE, -1)
    assert flow.is_to_other_host
    assert flow.frontend[1] == 30011
    assert predicted(flow, _ONE, after, Settings()) == prediction


def test_default_seeds_need_every_conntrack_exception() -> None:
    uses = _uses_without_conntrack()
    for seed in DEFAULT_SEEDS:
        history = random_history(seed, 3)
        for before, after in pairwise(history.clusters):
            old, new = ({service.number: service for service in one.services} for one in (before, after))
            for flow in flows_of(before, history.settings).values():
                exception = predicted(flow, old[flow.service], new.get(flow.service), history.settings).exception
                if exception is not None:
                    uses.count_entry(exception)
    assert [name for name in uses.unused() if name.startswith("conntrack")] == []


def _uses_without_conntrack() -> ExceptionUses:
    uses = ExceptionUses()
    assert any(name.startswith("conntrack") for name in uses.unused())
    return uses


def test_docs_list_the_conntrack_exceptions() -> None:
    table = "\n".join(conntrack_table())
    assert f"\n\n{table}\n" in (_DOCS / "behaviour/conntrack.md").read_text()
