"""Which objects an invalid document may describe: only their rules stay after a restart."""

from pathlib import Path

import pytest

from knft.model.names import NamespacedName
from knft.model.unknown import ANYTHING, NOTHING_UNKNOWN, UnknownObjects
from knft.source.decode import decode
from knft.source.directory import DirectorySource
from knft.source.missing_files import SETTLE_SECONDS
from tests.support.bad_manifests import service, text
from tests.support.fake_clock import FakeClock

WEB = text(service("web", 1))
META = "metadata: {name: web-abc, namespace: shop}"
VALUE = "spec: {clusterIP: nonsense, ports: [{port: 80}]}"
LABELLED = "metadata: {name: web-abc, namespace: shop, labels: {kubernetes.io/service-name: web}}"
SHOP_WEB = UnknownObjects(services=frozenset({NamespacedName("shop", "web")}))
SHOP_WEB_ABC = UnknownObjects(services=frozenset({NamespacedName("shop", "web-abc")}))
SHOP = UnknownObjects(namespaces=frozenset({"shop"}))
NODE = UnknownObjects(node=True)
SLICE = "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice"


@pytest.mark.parametrize(
    ("document", "unknown"),
    [
        (f"apiVersion: v1\nkind: Service\n{META}\n{VALUE}", SHOP_WEB_ABC),
        (
            f"apiVersion: v1\nkind: Service\nmetadata: {{name: web}}\n{VALUE}",
            UnknownObjects(services=frozenset({NamespacedName("default", "web")})),
        ),
        (f"apiVersion: v2\nkind: service\n{META}\n{VALUE}", SHOP_WEB_ABC),
        (f"{SLICE}\n{LABELLED}\naddressType: IPv5", SHOP_WEB),
        (f"{SLICE}\n{META}\naddressType: IPv5", SHOP),
        ("apiVersion: v1\nkind: Node\nmetadata: {name: node-1}\nstatus: 7", NODE),
        ("apiVersion: networking.k8s.io/v1\nkind: ServiceCIDR\nmetadata: {name: a}\nspec: {cidrs: [x]}", NODE),
        (f"apiVersion: v1\nkind: Service\nmetadata: {{name: Web_1}}\n{VALUE}", ANYTHING),
        (f"apiVersion: v1\nkind: Service\nmetadata: {{}}\n{VALUE}", ANYTHING),
        (f"apiVersion: v1\nkind: Service\nmetadata: web\n{VALUE}", ANYTHING),
        (f"kind: [Service]\napiVersion: v1\n{META}\n{VALUE}", ANYTHING),
        (f"apiVersion: v1\n{META}\n{VALUE}", ANYTHING),
        ("apiVersion: v1\nkind: List\nitems: [{apiVersion: v1, kind: List, items: []}]", ANYTHING),
        ("apiVersion: v1\nkind: List\nitems: [3]", ANYTHING),
        ("just text", ANYTHING),
        ("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}", NOTHING_UNKNOWN),
        (WEB, NOTHING_UNKNOWN),
    ],
)
def test_document_describes_the_object_that_it_names(document: str, unknown: UnknownObjects) -> None:
    assert decode(f"{document}\n---\n{WEB}".encode()).unknown == unknown


def test_several_invalid_documents_are_merged() -> None:
    documents = f"apiVersion: v1\nkind: Service\n{META}\n{VALUE}\n---\n{SLICE}\n{LABELLED}\naddressType: IPv5\n"
    unknown = decode(documents.encode()).unknown
    assert unknown == UnknownObjects.merged((SHOP_WEB, SHOP_WEB_ABC))
    assert str(unknown) == "Service shop/web and Service shop/web-abc"
    assert str(UnknownObjects.merged((SHOP, NODE))) == "the node and all Services in namespace shop"
    names = frozenset(NamespacedName("shop", name) for name in "abcde")
    assert str(UnknownObjects(services=names)) == "Service shop/a and Service shop/b and Service shop/c and 2 more"


@pytest.mark.parametrize(
    ("content", "unknown"),
    [
        (f"apiVersion: v1\nkind: Service\n{META}\n", ANYTHING),
        (f"apiVersion: v1\nkind: Service\n{META}\nspec:\n  clusterIP: 10.96.0.1\n  ports:\n  - name: a\n", ANYTHING),
        (f"apiVersion: v1\nkind: Service\n{META}\n---\n{WEB}", SHOP_WEB_ABC),
        (f"apiVersion: v1\nkind: Service\n{META}\n{VALUE}\n", SHOP_WEB_ABC),
        ('{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web-abc", "namespace": "shop"}}', SHOP_WEB_ABC),
    ],
    ids=["without spec at the end", "without a field at the end", "in the middle", "wrong value at the end", "JSON"],
)
def test_yaml_file_that_ends_with_an_incomplete_object_may_be_truncated(content: str, unknown: UnknownObjects) -> None:
    """YAML that was truncated after a line is valid; truncated JSON is not."""
    assert decode(content.encode()).unknown == unknown


def test_unknown_objects_of_a_directory(tmp_path: Path) -> None:
    """A file that cannot be read may contain anything, and so may a directory without Services."""
    (tmp_path / "a.yaml").write_text(f"apiVersion: v1\nkind: Service\n{META}\n{VALUE}\n")
    source = DirectorySource(str(tmp_path))
    source.scan()
    assert source.status.unknown == ANYTHING
    (tmp_path / "b.yaml").write_text(WEB)
    source.scan()
    assert source.status.unknown == SHOP_WEB_ABC
    (tmp_path / "c.yaml").write_text("a: [")
    source.scan()
    assert source.status.unknown == ANYTHING
    (tmp_path / "c.yaml").write_text(f"{SLICE}\n{META}\naddressType: IPv5\n")
    source.scan()
    assert source.status.unknown == UnknownObjects.merged((SHOP_WEB_ABC, SHOP))
    (tmp_path / "a.yaml").write_text("a: [")  # The objects that were read stay in use.
    source.scan()
    assert source.status.unknown == UnknownObjects.merged((SHOP_WEB_ABC, SHOP))
    for name in ("a.yaml", "c.yaml"):
        (tmp_path / name).write_text(WEB)
    source.scan()
    assert (source.status.unknown, source.status.incomplete_reason) == (NOTHING_UNKNOWN, "")
    (tmp_path / "a.yaml").write_text(f"apiVersion: v1\nkind: Service\n{META}\n{VALUE}\n")
    source.scan()
    assert source.status.unknown == NOTHING_UNKNOWN


def test_objects_of_a_file_that_is_being_replaced_stay_unknown(tmp_path: Path) -> None:
    """Until the objects that were read from it are removed, too."""
    clock = FakeClock()
    source = DirectorySource(str(tmp_path), clock, lambda: 0.0)
    (tmp_path / "a.yaml").write_text(f"{WEB}---\napiVersion: v1\nkind: Service\n{META}\n{VALUE}\n")
    (tmp_path / "b.yaml").write_text(text(service("api", 2)))
    source.scan()
    (tmp_path / "a.yaml").unlink()
    source.scan()
    assert source.status.unknown == SHOP_WEB_ABC
    clock.now += SETTLE_SECONDS
    source.scan()
    assert source.status.unknown == NOTHING_UNKNOWN
