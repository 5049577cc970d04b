"""Names of protocols: nft and iptables-save print those of /etc/protocols."""

import pytest

from knft.interpret.iptables import numbers
from knft.interpret.nftables import values


@pytest.mark.parametrize(("name", "number"), [("ipencap", 4), ("ipip", 94), ("gre", 47), ("sctp", 132)])
def test_both_readers_know_the_number_of_a_protocol(name: str, number: int) -> None:
    """Protocol ipip is not IP in IP, which is called ipencap."""
    assert numbers.protocol(name) == values.number(name, values.ValueKind.PROTOCOL) == number
