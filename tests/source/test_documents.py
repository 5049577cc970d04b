"""Documents that are not Kubernetes objects or of unsupported kinds, and Lists."""

from pathlib import Path

from knft.source.directory import DirectorySource
from knft.source.missing_files import SETTLE_SECONDS
from tests.support.bad_manifests import (
    VALID_CLUSTER_IPS,
    ManifestCase,
    check_problems,
    endpoint_slice,
    scan_and_render,
    service,
    text,
)
from tests.support.fake_clock import FakeClock
from tests.support.kube_objects import parametrize_cases

SERVED = frozenset({"10.96.0.9"})


def _list(kind: str, *items: object) -> str:
    return text({"apiVersion": "v1", "kind": kind, "items": list(items)})


def _kind(version: object, kind: object) -> str:
    return text({"apiVersion": version, "kind": kind, "metadata": {"name": "bad"}})


DOCUMENTS = {
    "list": ManifestCase("[a, b]", ("document 2: expected a Kubernetes object, found a list; skipped",)),
    "text": ManifestCase("web", ("document 2: expected a Kubernetes object, found text; skipped",)),
    "number": ManifestCase("8080", ("document 2: expected a Kubernetes object, found a number; skipped",)),
    "only a comment": ManifestCase("# comment\n", ()),
    "no kind": ManifestCase("apiVersion: v1", ("document 2: kind is missing; skipped",)),
    "kind is a list": ManifestCase(_kind("v1", ["Service"]), ("document 2: kind is a list, not text; skipped",)),
    "no apiVersion": ManifestCase("kind: Service", ("document 2: apiVersion is missing; skipped",)),
    "apiVersion is a number": ManifestCase(
        _kind(1, "Service"), ("document 2: apiVersion is a number, not text; skipped",)
    ),
    "apiVersion of a List is a list": ManifestCase(
        "apiVersion: []\nkind: List\nitems: []", ("document 2: apiVersion is a list, not text; skipped",)
    ),
    "unsupported version": ManifestCase(
        _kind("discovery.k8s.io/v1beta1", "EndpointSlice"),
        (
            (
                "document 2: EndpointSlice of apiVersion 'discovery.k8s.io/v1beta1' is not supported; "
                "use discovery.k8s.io/v1; skipped"
            ),
        ),
    ),
    "unsupported version of a kind with two versions": ManifestCase(
        _kind("networking.k8s.io/v2", "ServiceCIDR"),
        (
            (
                "document 2: ServiceCIDR of apiVersion 'networking.k8s.io/v2' is not supported; "
                "use networking.k8s.io/v1 or networking.k8s.io/v1beta1; skipped"
            ),
        ),
    ),
    "kind in lower case": ManifestCase(
        _kind("v1", "service"), ("document 2: unknown kind 'service'; use Service; skipped",)
    ),
    "duplicate key": ManifestCase(
        "apiVersion: v1\nkind: Service\nmetadata: {name: bad}\nspec:\n  clusterIP: 10.96.0.8\n  clusterIP: 10.96.0.9\n"
        "  ports: [{port: 80}]",
        ("document 2: line 15: duplicate key 'clusterIP'; using the last value",),
        SERVED,
    ),
    "aliases and merge keys": ManifestCase(
        "x: &port {port: 80}\napiVersion: v1\nkind: Service\nmetadata: {name: bad}\n"
        "spec: {clusterIP: &ip 10.96.0.9, clusterIPs: [*ip], ports: [{<<: *port, name: web}]}",
        (),
        SERVED,
    ),
}

LISTS = {
    "items: null": ManifestCase("apiVersion: v1\nkind: List\nitems: null", ()),
    "no items": ManifestCase("apiVersion: v1\nkind: List", ()),
    "null item": ManifestCase(
        _list("List", service("web"), None),
        ("document 2, items[1]: expected a Kubernetes object, found null; skipped",),
        SERVED,
    ),
    "invalid item": ManifestCase(
        _list("List", service("web"), service("bad", ports=[{"port": 0}])),
        ("Service bad: spec.ports[0].port: 0 is not between 1 and 65535; skipped",),
        SERVED,
    ),
    "items is a number": ManifestCase(
        "apiVersion: v1\nkind: List\nitems: 7",
        ("document 2, items[0]: expected a Kubernetes object, found a number; skipped",),
    ),
    "List inside a List": ManifestCase(
        _list("List", service("web"), {"apiVersion": "v1", "kind": "List", "items": [service("inner", 8)]}),
        ("document 2, items[1]: a List inside a List is not supported; skipped",),
        SERVED,
    ),
    "typed list whose items have no kind and apiVersion": ManifestCase(
        _list("ServiceList", {key: value for key, value in service("web").items() if key in ("metadata", "spec")}),
        (),
        SERVED,
    ),
    "typed list with an item of an unknown kind": ManifestCase(
        _list("ServiceList", service("web"), {"apiVersion": "v1", "kind": "service", "metadata": {"name": "bad"}}),
        ("document 2, items[1]: unknown kind 'service'; use Service; skipped",),
        SERVED,
    ),
    "EndpointSlice without endpoints": ManifestCase(_list("List", endpoint_slice("x", endpoints=None)), ()),
}

SKIPPED = {
    "unknown kind": ManifestCase(_kind("v1", "Servcie"), ("Servcie skipped (1)",)),
    "unsupported kinds": ManifestCase(
        f"{_kind('apps/v1', 'Deployment')}---\n{_kind('apps/v1', 'Deployment')}---\n{_kind('v1', 'Secret')}",
        ("Deployment skipped (2)", "Secret skipped (1)"),
    ),
    "supported kind of another API group": ManifestCase(
        _kind("serving.knative.dev/v1", "Service"), ("Service of serving.knative.dev/v1 skipped (1)",)
    ),
    "typed list of an unsupported kind": ManifestCase(
        _list("PodList", {"kind": "Pod", "apiVersion": "v1"}), ("Pod skipped (1)",)
    ),
    "unsupported kind whose name ends in List": ManifestCase(
        _kind("example.com/v1", "AllowList"), ("AllowList skipped (1)",)
    ),
    "very long group": ManifestCase(
        _kind(f"{'a' * 5000}/v1", "service"), (f"service of {'a' * 60!r}... (5003 characters) skipped (1)",)
    ),
    "kind with a newline": ManifestCase(_kind("v1", "a\nb"), ("'a\\nb' skipped (1)",)),
}


@parametrize_cases(DOCUMENTS)
def test_invalid_documents_are_reported(tmp_path: Path, case: ManifestCase) -> None:
    check_problems(tmp_path, case)


@parametrize_cases(LISTS)
def test_invalid_lists_and_items_are_reported(tmp_path: Path, case: ManifestCase) -> None:
    check_problems(tmp_path, case)


@parametrize_cases(SKIPPED)
def test_unsupported_kind_is_counted_as_skipped(tmp_path: Path, case: ManifestCase) -> None:
    """The number is reported as a notice, not as a problem."""
    result = check_problems(tmp_path, ManifestCase(case.text, ()))
    assert result.notices == tuple(f"{tmp_path}/bad.yaml: {message}" for message in case.problems)


def test_first_of_two_definitions_in_a_file_is_used(tmp_path: Path) -> None:
    """Only a document that differs from the first is reported."""
    case = ManifestCase(
        text(service("web"), service("web", 8), service("web")),
        ("Service default/web: document 3 and document 2 of this file differ; using document 2",),
        SERVED,
    )
    check_problems(tmp_path, case)


def test_first_of_two_definitions_in_two_files_is_used(tmp_path: Path) -> None:
    """The first file in the order of names is used until it is deleted."""
    for name, number in (("a.yaml", 1), ("b.yaml", 2), ("c.yaml", 1)):
        (tmp_path / name).write_text(text(service("web", number)))
    (tmp_path / "other.yaml").write_text(text(service("other", 3)))
    clock = FakeClock()
    source = DirectorySource(str(tmp_path), clock)
    result = scan_and_render(source)
    message = f"{tmp_path}/b.yaml: Service default/web: a.yaml defines it differently; using that definition"
    assert set(result.problems) == {message}
    assert result.served == {"10.96.0.1", "10.96.0.3"}
    (tmp_path / "a.yaml").unlink()
    source.scan()
    clock.now += SETTLE_SECONDS
    (change,) = source.scan().changes
    assert change.current is not None
    assert change.current.spec.cluster_ip == "10.96.0.2"  # type: ignore[union-attr]


def test_invalid_object_does_not_hide_a_valid_one(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(text(service("web", 1, ports=[{"port": 0}])))
    (tmp_path / "b.yaml").write_text(text(service("web", 2), service("x", 1), service("y", 3)))
    result = scan_and_render(DirectorySource(str(tmp_path)))
    assert result.problems == (
        f"{tmp_path}/a.yaml: Service web: spec.ports[0].port: 0 is not between 1 and 65535; skipped",
    )
    assert result.served == VALID_CLUSTER_IPS
