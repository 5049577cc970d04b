"""Lists in reports hide at least two items."""

import re

import pytest

from knft.interpret.compare.formatting import format_networks, format_ports


@pytest.mark.parametrize(("ports", "expected"), [((1, 3, 5, 7), "1, 3, 5, 7"), ((1, 3, 5, 7, 9), "1, 3, 5 and more")])
def test_a_list_never_hides_a_single_item(ports: tuple[int, ...], expected: str) -> None:
    assert format_ports(tuple((port, port) for port in ports)) == expected
    addresses = tuple((number, number) for number in ports)
    assert format_networks(4, addresses) == re.sub(r"(\d)", r"0.0.0.\1", expected)
