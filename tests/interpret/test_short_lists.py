"""Lists in reports hide at least two items."""

import pytest

from knft.interpret.compare.formatting import format_ports


@pytest.mark.parametrize(("ports", "expected"), [((1, 3, 5, 7), "1, 3, 5, 7"), ((1, 3, 5, 7, 9), "1, 3, 5 and more")])
def test_a_list_never_hides_a_single_item(ports: tuple[int, ...], expected: str) -> None:
    assert format_ports(tuple((port, port) for port in ports)) == expected
