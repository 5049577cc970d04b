"""are_ordinary_ipv4 agrees with parse_address and special_use."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knft.model.addresses import are_ordinary_ipv4, parse_address, special_use

OCTET = st.one_of(st.sampled_from([0, 10, 127, 169, 192, 223, 224, 254, 255]), st.integers(0, 255))


@given(st.tuples(OCTET, OCTET, OCTET, OCTET))
def test_ordinary_address_is_canonical_without_special_use(octets: tuple[int, ...]) -> None:
    text = ".".join(map(str, octets))
    if are_ordinary_ipv4([text]):
        assert parse_address(text) is not None
        assert special_use(text) == ""
    else:
        assert octets[0] in (0, 127, 169) or octets[0] >= 224


@pytest.mark.parametrize(
    "text", ["", " ", "01.2.3.4", "1.2.3", "1.2.3.4 ", "1.2.3.4\n", "1.2.3.4 5.6.7.8", "1.2.3.256", "::1", "x"]
)
def test_non_canonical_address_is_not_ordinary(text: str) -> None:
    assert are_ordinary_ipv4(["10.0.0.1"])
    assert not are_ordinary_ipv4(["10.0.0.1", text])
