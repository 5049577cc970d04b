"""What the tests say about objects is so: what the API server refuses, what it holds, and when that is in force."""

import pytest

from tests.cluster.api import ApiError
from tests.cluster.applier import Applier
from tests.cluster.cluster import Cluster
from tests.cluster.desired import Key, desired_objects, key_of
from tests.cluster.refused_objects import REFUSED
from tests.cluster.service_account import ServiceAccount
from tests.support.scenario import read_scenarios


def test_the_release_is_the_pinned_one(cluster: Cluster) -> None:
    """It knows its own version: gates and defaults hang on that."""
    assert cluster.api.call("GET", "/version")["gitVersion"] == cluster.release


def test_exactly_these_objects_are_refused(cluster: Cluster) -> None:
    """For these reasons; all others are made through the API, and everything is handed out by it."""
    applier = Applier(cluster)
    refused: dict[tuple[str, Key], str] = {}
    for scenario in read_scenarios():
        for objects in filter(None, (scenario.before and scenario.earlier_manifests(), scenario.manifests())):
            applier.apply(objects)
            refused |= {(scenario.name, key): said for key, said in applier.refused.items()}
            assert applier.list_objects().keys() == desired_objects(objects).keys()
    assert refused.keys() == REFUSED.keys()
    assert {place: refusal.message for place, refusal in REFUSED.items() if refusal.message not in refused[place]} == {}
    applier.apply([])
    assert [key[2] for key in applier.list_objects()] == ["scenarios"]


def test_what_is_held_is_what_was_said(cluster: Cluster) -> None:
    """Field by field: the API server takes nothing away, and adds no node port."""
    applier = Applier(cluster)
    for scenario in read_scenarios():
        applier.apply(scenario.manifests())
        held = applier.list_objects()
        for item in scenario.manifests():
            key = key_of(item)
            if key[0] in ("Service", "EndpointSlice") and "ExternalName" not in str(item):
                assert _lost(item, held[key]) == [], (scenario.name, key)
                if key[0] == "Service":
                    assert _node_ports(held[key]) == _node_ports(item) or item["spec"].get("type") == "NodePort"


def test_a_token_is_somebodys_until_it_is_not(account: ServiceAccount) -> None:
    """Tokens that the tests sign are like those of the API server, but for their time."""
    assert account.is_accepted(account.token())
    assert account.is_accepted(account.short_lived_token(3600))
    assert not account.is_accepted(account.short_lived_token(-1))
    with pytest.raises(ApiError, match=account.name):
        account.client(account.short_lived_token(3600)).list("Secret")


def _node_ports(service: dict[str, object]) -> list[object]:
    spec = service["spec"]
    assert isinstance(spec, dict)
    return [port.get("nodePort") for port in spec.get("ports", [])]


def _lost(said: object, held: object, path: str = "") -> list[str]:
    """Return the fields that were said and are not so."""
    if isinstance(said, dict) and isinstance(held, dict):
        return [lost for name, value in said.items() for lost in _lost(value, held.get(name), f"{path}.{name}")]
    if isinstance(said, list) and isinstance(held, list) and len(said) == len(held):
        pairs = enumerate(zip(said, held, strict=True))
        return [lost for number, (one, other) in pairs for lost in _lost(one, other, f"{path}[{number}]")]
    return [] if said == held or not (said or held) else [f"{path}: {said!r}, {held!r}"]
