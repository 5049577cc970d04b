"""Documents that are no objects, or other objects than knft reads, and Lists."""

from pathlib import Path

from knft.source.directory import DirectorySource
from tests.support.bad_manifests import (
    VALID_CLUSTER_IPS,
    Row,
    check_problems,
    endpoint_slice,
    scan_and_render,
    service,
    text,
)
from tests.support.kube_objects import parametrize_rows

STILL = frozenset({"10.96.0.9"})


def _list(kind: str, *items: object) -> str:
    return text({"apiVersion": "v1", "kind": kind, "items": list(items)})


def _kind(version: object, kind: object) -> str:
    return text({"apiVersion": version, "kind": kind, "metadata": {"name": "bad"}})


DOCUMENTS = {
    "a list": Row("[a, b]", ("document 2: a list is not a Kubernetes object; skipped",)),
    "text": Row("web", ("document 2: text is not a Kubernetes object; skipped",)),
    "a number": Row("8080", ("document 2: a number is not a Kubernetes object; skipped",)),
    "nothing": Row("# only words\n", ()),
    "no kind": Row("apiVersion: v1", ("document 2: kind is missing; skipped",)),
    "a kind that is a list": Row(_kind("v1", ["Service"]), ("document 2: kind is a list, not text; skipped",)),
    "no apiVersion": Row("kind: Service", ("document 2: apiVersion is missing; skipped",)),
    "an apiVersion that is a number": Row(
        _kind(1, "Service"), ("document 2: apiVersion is a number, not text; skipped",)
    ),
    "an apiVersion that is a list, of a List": Row(
        "apiVersion: []\nkind: List\nitems: []", ("document 2: apiVersion is a list, not text; skipped",)
    ),
    "an unknown version of a kind": Row(
        _kind("discovery.k8s.io/v1beta1", "EndpointSlice"),
        (
            (
                "document 2: EndpointSlice of apiVersion 'discovery.k8s.io/v1beta1' is not supported; "
                "use discovery.k8s.io/v1; skipped"
            ),
        ),
    ),
    "an unknown version of a kind with two": Row(
        _kind("networking.k8s.io/v2", "ServiceCIDR"),
        (
            (
                "document 2: ServiceCIDR of apiVersion 'networking.k8s.io/v2' is not supported; "
                "use networking.k8s.io/v1 or networking.k8s.io/v1beta1; skipped"
            ),
        ),
    ),
    "a kind in small letters": Row(
        _kind("v1", "service"), ("document 2: unknown kind 'service'; use Service; skipped",)
    ),
    "a key that stands twice": Row(
        "apiVersion: v1\nkind: Service\nmetadata: {name: bad}\nspec:\n  clusterIP: 10.96.0.8\n  clusterIP: 10.96.0.9\n"
        "  ports: [{port: 80}]",
        ("document 2: line 15: duplicate key 'clusterIP'; using the last value",),
        STILL,
    ),
    "aliases and merged mappings": Row(
        "x: &port {port: 80}\napiVersion: v1\nkind: Service\nmetadata: {name: bad}\n"
        "spec: {clusterIP: &ip 10.96.0.9, clusterIPs: [*ip], ports: [{<<: *port, name: web}]}",
        (),
        STILL,
    ),
}

LISTS = {
    "items: null": Row("apiVersion: v1\nkind: List\nitems: null", ()),
    "no items": Row("apiVersion: v1\nkind: List", ()),
    "a null among the items": Row(
        _list("List", service("web"), None), ("document 2, items[1]: null is not a Kubernetes object; skipped",), STILL
    ),
    "a bad object among the items": Row(
        _list("List", service("web"), service("bad", ports=[{"port": 0}])),
        ("Service bad: spec.ports[0].port: 0 is not between 1 and 65535; skipped",),
        STILL,
    ),
    "items that are no list": Row(
        "apiVersion: v1\nkind: List\nitems: 7", ("document 2, items[0]: a number is not a Kubernetes object; skipped",)
    ),
    "a List within a List": Row(
        _list("List", service("web"), {"apiVersion": "v1", "kind": "List", "items": [service("inner", 8)]}),
        ("document 2, items[1]: a List inside a List is not supported; skipped",),
        STILL,
    ),
    "a typed list, whose items leave out what they are": Row(
        _list("ServiceList", {key: value for key, value in service("web").items() if key in ("metadata", "spec")}),
        (),
        STILL,
    ),
    "a typed list with something else in it": Row(
        _list("ServiceList", service("web"), {"apiVersion": "v1", "kind": "service", "metadata": {"name": "bad"}}),
        ("document 2, items[1]: unknown kind 'service'; use Service; skipped",),
        STILL,
    ),
    "a namespace and labels that are left out": Row(_list("List", endpoint_slice("x", endpoints=None)), ()),
}

SKIPPED = {
    "an unknown kind": Row(_kind("v1", "Servcie"), ("Servcie skipped (1)",)),
    "known kinds that are not read": Row(
        f"{_kind('apps/v1', 'Deployment')}---\n{_kind('apps/v1', 'Deployment')}---\n{_kind('v1', 'Secret')}",
        ("Deployment skipped (2)", "Secret skipped (1)"),
    ),
    "a kind of the same name from elsewhere": Row(
        _kind("serving.knative.dev/v1", "Service"), ("Service of serving.knative.dev/v1 skipped (1)",)
    ),
    "a list of a kind that is not read": Row(
        _list("PodList", {"kind": "Pod", "apiVersion": "v1"}), ("Pod skipped (1)",)
    ),
    "a kind that only ends in List": Row(_kind("example.com/v1", "AllowList"), ("AllowList skipped (1)",)),
    "a kind and a group without end": Row(
        _kind(f"{'a' * 5000}/v1", "service"), (f"service of {'a' * 60!r}... (5003 characters) skipped (1)",)
    ),
    "a kind with a newline": Row(_kind("v1", "a\nb"), ("'a\\nb' skipped (1)",)),
}


@parametrize_rows(DOCUMENTS)
def test_invalid_documents_are_reported(tmp_path: Path, row: Row) -> None:
    check_problems(tmp_path, row)


@parametrize_rows(LISTS)
def test_invalid_lists_and_items_are_reported(tmp_path: Path, row: Row) -> None:
    check_problems(tmp_path, row)


@parametrize_rows(SKIPPED)
def test_unsupported_kind_is_counted_as_skipped(tmp_path: Path, row: Row) -> None:
    """It is counted, as a remark."""
    seen = check_problems(tmp_path, Row(row.text, ()))
    assert seen.notices == tuple(f"{tmp_path}/bad.yaml: {sentence}" for sentence in row.problems)


def test_first_of_two_definitions_in_a_file_is_used(tmp_path: Path) -> None:
    """The first counts; where both say the same, nobody needs to know."""
    row = Row(
        text(service("web"), service("web", 8), service("web")),
        ("Service default/web: document 3 and document 2 of this file differ; using document 2",),
        STILL,
    )
    check_problems(tmp_path, row)


def test_first_of_two_definitions_in_two_files_is_used(tmp_path: Path) -> None:
    """The first file in the order of names counts, until it is gone."""
    for name, number in (("a.yaml", 1), ("b.yaml", 2), ("c.yaml", 1)):
        (tmp_path / name).write_text(text(service("web", number)))
    (tmp_path / "other.yaml").write_text(text(service("other", 3)))
    source = DirectorySource(str(tmp_path))
    seen = scan_and_render(source)
    sentence = f"{tmp_path}/b.yaml: Service default/web: a.yaml defines it differently; using that definition"
    assert set(seen.problems) == {sentence}
    assert seen.served == {"10.96.0.1", "10.96.0.3"}
    (tmp_path / "a.yaml").unlink()
    (change,) = source.scan().changes
    assert change.current is not None
    assert change.current.spec.cluster_ip == "10.96.0.2"  # type: ignore[union-attr]


def test_invalid_object_does_not_hide_a_valid_one(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(text(service("web", 1, ports=[{"port": 0}])))
    (tmp_path / "b.yaml").write_text(text(service("web", 2), service("x", 1), service("y", 3)))
    seen = scan_and_render(DirectorySource(str(tmp_path)))
    assert seen.problems == (
        f"{tmp_path}/a.yaml: Service web: spec.ports[0].port: 0 is not between 1 and 65535; skipped",
    )
    assert seen.served == VALID_CLUSTER_IPS
