"""Whether a listed set or map is declared as knft declares it."""

from typing import Any

import pytest

from knft.families import Family
from knft.nft.codec.listed_table import is_declared_as
from knft.nft.objects import Container
from knft.render import layout
from knft.render.affinity import clients_set

FRONTENDS = Container("frontends", "ipv4_addr . inet_service", "verdict")
RANGES = Container("ranges", "ipv4_addr", interval=True)
CLIENTS = Container("clients", "ip saddr . numgen random mod 65536", by_expression=True, dynamic_size=100)

FRONTENDS_LISTED = {"type": ["ipv4_addr", "inet_service"], "map": "verdict"}
RANGES_LISTED = {"type": "ipv4_addr", "flags": ["interval"]}
CLIENTS_LISTED = {"type": ["ipv4_addr", "integer"], "size": 100, "flags": ["timeout"]}


@pytest.mark.parametrize(
    ("container", "listed"),
    [
        (FRONTENDS, FRONTENDS_LISTED),
        (FRONTENDS, FRONTENDS_LISTED | {"type": {"typeof": {"concat": ["anything"]}}}),
        (RANGES, RANGES_LISTED | {"comment": "another one"}),
        (RANGES, RANGES_LISTED | {"flags": "interval"}),
        (CLIENTS, CLIENTS_LISTED),
        (CLIENTS, CLIENTS_LISTED | {"size": 7, "flags": ["dynamic", "timeout"]}),
    ],
)
def test_declaration_of_any_version_is_recognised(container: Container, listed: dict[str, Any]) -> None:
    assert is_declared_as(listed, container)


@pytest.mark.parametrize(
    ("container", "listed"),
    [
        (FRONTENDS, FRONTENDS_LISTED | {"type": ["ipv4_addr", "inet_proto"]}),
        (FRONTENDS, FRONTENDS_LISTED | {"type": "ipv4_addr"}),
        (FRONTENDS, FRONTENDS_LISTED | {"map": "inet_service"}),
        (FRONTENDS, {"type": ["ipv4_addr", "inet_service"]}),
        (FRONTENDS, FRONTENDS_LISTED | {"flags": ["constant"]}),
        (FRONTENDS, FRONTENDS_LISTED | {"size": 1}),
        (RANGES, {"type": "ipv4_addr"}),
        (CLIENTS, {"type": ["ipv4_addr", "integer"]}),
    ],
)
def test_other_declaration_is_recognised(container: Container, listed: dict[str, Any]) -> None:
    assert not is_declared_as(listed, container)


AFFINITY_LISTED = {"type": ["ipv4_addr", "classid"], "size": 4194304, "flags": ["timeout"]}
"""As libnftables 1.0.6 lists the set ``affinity-clients``."""


def _declared(name: str) -> Container:
    (found,) = (each for each in layout.containers(Family.IPV4) if each.name == name)
    return found


def test_set_of_clients_is_recognised() -> None:
    clients = clients_set(Family.IPV4)
    assert is_declared_as(AFFINITY_LISTED, clients)
    assert is_declared_as(AFFINITY_LISTED | {"size": 65535}, clients), "a test or an administrator may choose another"
    assert not is_declared_as(AFFINITY_LISTED, clients_set(Family.IPV6))
    assert not is_declared_as(AFFINITY_LISTED | {"type": ["ipv4_addr", "integer"]}, clients)
    assert not is_declared_as(AFFINITY_LISTED | {"type": ["ipv4_addr", "mark"]}, clients)
    assert not is_declared_as(AFFINITY_LISTED | {"type": "ipv4_addr"}, clients)


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("endpoint-ids-tcp", ["ipv4_addr", "inet_service", "integer"]),
        ("local-nodeport-endpoint-ids-sctp", ["inet_service", "integer"]),
        ("wide-endpoint-ids", ["integer", "integer", "integer"]),
    ],
)
def test_maps_of_endpoint_ids_are_recognised(name: str, types: list[str]) -> None:
    declared = _declared(name)
    assert is_declared_as({"type": types, "map": "classid"}, declared)
    assert not is_declared_as({"type": types, "map": "mark"}, declared)
    assert not is_declared_as({"type": types, "map": "ipv4_addr . inet_service"}, declared)
    assert not is_declared_as({"type": types[1:], "map": "classid"}, declared)
    assert not is_declared_as({"type": types}, declared)
