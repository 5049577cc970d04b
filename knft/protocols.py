"""Transport protocols of Services: the API's names, nft's names and IP protocol numbers."""

from typing import Literal

Protocol = Literal["TCP", "UDP", "SCTP"]
"""A Service's transport protocol, as the API spells it."""

NFT_PROTOCOLS: dict[Protocol, str] = {"TCP": "tcp", "UDP": "udp", "SCTP": "sctp"}
"""The names in nftables, ipvsadm and iptables."""

TCP, UDP, SCTP = 6, 17, 132
"""IP protocol numbers, as constants: /etc/protocols is missing in slim images."""

PROTOCOL_NUMBERS: dict[str, int] = {"tcp": TCP, "udp": UDP, "sctp": SCTP}
PROTOCOL_NAMES: dict[int, str] = {number: name for name, number in PROTOCOL_NUMBERS.items()}
