"""Whether a listed set or map is declared as knft declares it."""

from typing import Any

import pytest

from knft.nft.codec.listed_table import is_declared_as
from knft.nft.objects import Container

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
