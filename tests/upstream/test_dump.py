"""The dump of the corpus: recorded events become cases in an order that is the same in each run."""

from pathlib import Path
from typing import Any

import pytest

from deploy.programs.errors import SetupError
from tests.upstream.assemble import documents
from tests.upstream.normalize import normalized
from tests.upstream.source import _apply, _Edit

Event = dict[str, Any]


def _object(tracker: int, name: str, item: Event | None) -> Event:
    kind = {"kind": "Service", "apiVersion": "v1", "name": name}
    return {"event": "object", "test": "TestA/one", "tracker": tracker, **kind, "object": item}


def _sync(*trackers: int, **fields: Any) -> Event:
    common = {"event": "sync", "test": "TestA/one", "failed": False}
    return {**common, "trackers": list(trackers), "configuration": {}, "result": {"nft": ["", "rule"]}, **fields}


def test_sync_has_changes_since_the_sync_before() -> None:
    events = [
        _object(0, "ns/a", {"metadata": {}}),
        _object(2, "ns/other", {"metadata": {}}),
        _sync(0, 1),
        _object(0, "ns/a", None),
        _sync(0, 1, configuration={"family": "IPv6"}),
        {"event": "asserted", "test": "TestA/one/sub"},
    ]
    ((proxier,),) = [document["proxiers"] for document in documents("nftables", events)]
    assert proxier["name"] == "TestA/one"
    assert proxier["syncs"] == [
        {"objects": [{"apiVersion": "v1", "kind": "Service", "metadata": {}}], "result": {"nft": ["rule"]}},
        {
            "deleted": ["Service ns/a"],
            "configuration": {"family": "IPv6"},
            "result": {"nft": ["rule"]},
            "asserted": True,
        },
    ]


def test_proxiers_of_one_test_have_different_names() -> None:
    (document,) = documents("nftables", [_sync(0, 1), _sync(2, 3)])
    assert [proxier["name"] for proxier in document["proxiers"]] == ["TestA/one", "TestA/one (2)"]


def test_order_of_services_does_not_count_but_order_of_rules_does() -> None:
    first, second = (f'-A KUBE-SERVICES -m comment --comment "ns/{name}:p cluster IP" -j X' for name in "ab")
    last = '-A KUBE-SERVICES -m comment --comment "kubernetes service nodeports; NOTE" -j KUBE-NODEPORTS'
    rules = ["-A KUBE-SVC-1 -s 2", "-A KUBE-SVC-1 -s 1"]
    lines = ["*nat", ":KUBE-SVC-1 - [0:0]", ":KUBE-SERVICES - [0:0]", *rules, last, second, first, "COMMIT"]
    chains = [":KUBE-SERVICES - [0:0]", ":KUBE-SVC-1 - [0:0]"]
    assert normalized(lines) == ["*nat", *chains, first, second, last, *rules, "COMMIT"]


def test_missing_place_in_the_source_is_named(tmp_path: Path) -> None:
    (tmp_path / "proxier.go").write_text("package iptables\n")
    with pytest.raises(SetupError, match=r"proxier\.go of this release has no 'func sync': adapt"):
        _apply(_Edit("proxier.go", "func sync", ""), tmp_path)
