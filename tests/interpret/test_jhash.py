"""The kernel's hash. tests/packets/test_consistent_hashing.py compares it with the kernel."""

from ipaddress import ip_address

import pytest

from knft.interpret.jhash import hash_slot, jhash


@pytest.mark.parametrize(
    ("data", "seed", "expected"),
    [
        # Bob Jenkins' lookup3.c, function driver5: hashlittle("", 0) and with seed 0xdeadbeef.
        (b"", 0, 0xDEADBEEF),
        (b"", 0xDEADBEEF, 0xBD5B7DDE),
    ],
)
def test_empty_key_has_the_published_hash(data: bytes, seed: int, expected: int) -> None:
    assert jhash(data, seed) == expected


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param([("192.0.2.1", 4)], 8, id="IPv4 address"),
        pytest.param([("192.0.2.1", 4), (20000, 2)], 718, id="IPv4 address and port"),
        pytest.param([("2001:db8::1", 16)], 326, id="IPv6 address"),
        pytest.param([("2001:db8::1", 16), (20000, 2)], 743, id="IPv6 address and port"),
    ],
)
def test_hash_of_fields_never_changes(parts: list[tuple[str | int, int]], expected: int) -> None:
    """The values are those for which a kernel chose the same endpoints."""
    numbers = [(int(ip_address(value)) if isinstance(value, str) else value, size) for value, size in parts]
    assert hash_slot(numbers, 1021, 0x6B6E6674) == expected
