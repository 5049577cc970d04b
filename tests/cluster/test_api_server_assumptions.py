"""Which objects the API server refuses, and that it stores the others unchanged, as the tests in this folder assume."""

import pytest

from tests.cluster.api import ApiError
from tests.cluster.applier import Applier
from tests.cluster.cluster import Cluster
from tests.cluster.desired import Key, desired_objects, key_of
from tests.cluster.refused_objects import REFUSED
from tests.cluster.service_account import ServiceAccount
from tests.support.scenario import read_scenarios


def test_api_server_has_the_pinned_release(cluster: Cluster) -> None:
    """Feature gates and defaults depend on its version."""
    assert cluster.api.call("GET", "/version")["gitVersion"] == cluster.release


def test_exactly_the_expected_objects_are_refused(cluster: Cluster) -> None:
    """They are refused for the expected reasons; all other objects are created through the API."""
    applier = Applier(cluster)
    refused: dict[tuple[str, Key], str] = {}
    for scenario in read_scenarios():
        for objects in filter(None, (scenario.before and scenario.earlier_manifests(), scenario.manifests())):
            applier.apply(objects)
            refused |= {(scenario.name, key): manifest for key, manifest in applier.refused.items()}
            assert applier.list_objects().keys() == desired_objects(objects).keys()
    assert refused.keys() == REFUSED.keys()
    assert {place: refusal.message for place, refusal in REFUSED.items() if refusal.message not in refused[place]} == {}
    applier.apply([])
    assert [key[2] for key in applier.list_objects()] == ["scenarios"]


def test_stored_objects_equal_the_manifests(cluster: Cluster) -> None:
    """Field by field: the API server drops nothing, and adds no node port."""
    applier = Applier(cluster)
    for scenario in read_scenarios():
        applier.apply(scenario.manifests())
        stored = applier.list_objects()
        for item in scenario.manifests():
            key = key_of(item)
            if key[0] in ("Service", "EndpointSlice") and "ExternalName" not in str(item):
                assert _differing_fields(item, stored[key]) == [], (scenario.name, key)
                if key[0] == "Service":
                    assert _node_ports(stored[key]) == _node_ports(item) or item["spec"].get("type") == "NodePort"


def test_short_lived_tokens_are_accepted_until_they_expire(service_account: ServiceAccount) -> None:
    """Tokens that the tests sign are like those of the API server, except for their lifetime."""
    assert service_account.is_accepted(service_account.token())
    assert service_account.is_accepted(service_account.short_lived_token(3600))
    assert not service_account.is_accepted(service_account.short_lived_token(-1))
    with pytest.raises(ApiError, match=service_account.name):
        service_account.client(service_account.short_lived_token(3600)).list("Secret")


def _node_ports(service: dict[str, object]) -> list[object]:
    spec = service["spec"]
    assert isinstance(spec, dict)
    return [port.get("nodePort") for port in spec.get("ports", [])]


def _differing_fields(manifest: object, stored: object, path: str = "") -> list[str]:
    """Return the fields of the manifest that the stored object does not have."""
    if isinstance(manifest, dict) and isinstance(stored, dict):
        return [
            field
            for name, value in manifest.items()
            for field in _differing_fields(value, stored.get(name), f"{path}.{name}")
        ]
    if isinstance(manifest, list) and isinstance(stored, list) and len(manifest) == len(stored):
        pairs = enumerate(zip(manifest, stored, strict=True))
        return [field for number, (one, other) in pairs for field in _differing_fields(one, other, f"{path}[{number}]")]
    return [] if manifest == stored or not (manifest or stored) else [f"{path}: {manifest!r}, {stored!r}"]
