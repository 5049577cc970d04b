"""Parsing of ipsets as collections; the real program creates the sets if the kernel supports their type."""

import pytest

from knft.errors import CaptureError
from knft.interpret.iptables import read
from knft.interpret.iptables.ipsets import read_sets
from knft.interpret.rules import Element, InSet, Never, Step, Unknown
from tests.support.iptables_programs import namespace

CAPTURE_AGAIN = "the capture is incomplete, run ipset save again"
FIRST_ADDRESS, SECOND_ADDRESS = 0x0A000001, 0x0A000002
NETWORK = (0x0A010000, 0x0A01FFFF)

KINDS = [
    ("hash:ip", "10.0.0.1", [(FIRST_ADDRESS,)]),
    ("hash:ip netmask 16", "10.1.2.3", [(NETWORK,)]),
    ("hash:ip timeout 60", "10.0.0.1 timeout 30", [(FIRST_ADDRESS,)]),
    ("hash:net", "10.1.0.0/16", [(NETWORK,)]),
    ("hash:net", "10.0.0.1/32", [(FIRST_ADDRESS,)]),
    ("hash:ip,port", "10.0.0.1,tcp:80", [(FIRST_ADDRESS, 6, 80)]),
    ("hash:ip,port", "10.0.0.1,80", [(FIRST_ADDRESS, 6, 80)]),
    ("hash:ip,port", "10.0.0.1,udp:53", [(FIRST_ADDRESS, 17, 53)]),
    ("hash:ip,port", "10.0.0.1,sctp:9", [(FIRST_ADDRESS, 132, 9)]),
    ("hash:ip,port", "10.0.0.1,gre:0", [(FIRST_ADDRESS, 47, (0, 65535))]),
    ("hash:ip,port,ip", "10.0.0.1,tcp:80,10.0.0.2", [(FIRST_ADDRESS, 6, 80, SECOND_ADDRESS)]),
    ("hash:ip,port,net", "10.0.0.1,tcp:80,10.1.0.0/16", [(FIRST_ADDRESS, 6, 80, NETWORK)]),
    ("hash:net,port", "10.1.0.0/16,tcp:80", [(NETWORK, 6, 80)]),
    ("bitmap:ip range 10.0.0.0-10.0.0.255", "10.0.0.1", [(FIRST_ADDRESS,)]),
    ("bitmap:port range 0-65535", "80", [(6, 80), (17, 80)]),
    ("hash:ip family inet6", "::1", [(1,)]),
    ("hash:ip,port family inet6", "::1,tcp:80", [(1, 6, 80)]),
    ("hash:net family inet6", "fd00::/16", [((0xFD00 << 112, 0xFD01 * (1 << 112) - 1),)]),
]


@pytest.mark.kernel
@pytest.mark.parametrize(("kind", "entry", "keys"), KINDS)
def test_entries_of_every_type_are_parsed(kind: str, entry: str, keys: list[object]) -> None:
    text = f"create s {kind}\nadd s {entry}\n"
    with namespace() as made:
        made.run(["ipset", "restore"], stdin=text)
        saved = made.run(["ipset", "save"]).stdout
    for printed in (text, saved):
        assert [element.key for element in read_sets(printed)["s"].elements] == keys


def test_pairs_of_networks_are_parsed() -> None:
    """The real program does not create the set, because not every kernel supports this type."""
    text = "create s hash:net,net\nadd s 10.1.0.0/16,10.0.0.2\n"
    assert [element.key for element in read_sets(text)["s"].elements] == [(NETWORK, SECOND_ADDRESS)]


def test_comments_are_kept() -> None:
    text = 'create s hash:ip comment counters\nadd s 10.0.0.1 packets 3 bytes 4 comment "who: \\"me\\""\n'
    assert read_sets(text)["s"].elements == (Element((FIRST_ADDRESS,), comment='who: "me"'),)


def test_range_is_one_element() -> None:
    text = "create s hash:ip,port -exist\nadd s 10.0.0.1-10.0.0.2,tcp:80-90 -exist\n"
    assert [element.key for element in read_sets(text)["s"].elements] == [
        ((FIRST_ADDRESS, SECOND_ADDRESS), 6, (80, 90))
    ]


def test_deleted_entries_and_sets_are_absent() -> None:
    text = "create s hash:ip\nadd s 10.0.0.1\nadd s 10.0.0.2\ndel s 10.0.0.1\ncreate t hash:ip\ndestroy t\n"
    found = read_sets(text)
    assert [element.key for element in found["s"].elements] == [(SECOND_ADDRESS,)]
    assert set(found) == {"s"}
    assert read_sets(f"{text}flush s\n")["s"].elements == ()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("create s list:set size 8\nadd s t\n", "list:set"),
        ("create s hash:mac\nadd s 02:00:00:00:00:01\n", "hash:mac"),
        ("create s hash:net,iface\nadd s 10.0.0.0/8,eth0\n", "hash:net,iface"),
        ("create s hash:ip,mark\n", "hash:ip,mark"),
        ("create s hash:net\nadd s 10.0.0.0/8 nomatch\nadd s 10.0.0.0/8\n", "add s 10.0.0.0/8 nomatch"),
        ("create s hash:ip,port\nadd s 10.0.0.1,icmp:echo-request\n", "add s 10.0.0.1,icmp:echo-request"),
        ("create s hash:ip bitmask 255.255.0.0\n", "bitmask"),
    ],
)
def test_unsupported_set_makes_the_match_unknown(text: str, why: str) -> None:
    assert why in read_sets(text)["s"].uninterpreted
    assert _steps("-m set --match-set s src,src -j DROP", text)[0] == Unknown("-m set --match-set s src,src")


FOREIGN = "create s hash:ip family inet6\nadd s ::1\ncreate p hash:ip,port\n"


@pytest.mark.parametrize("test", ["--match-set s src", "--match-set p src"])
def test_set_of_the_other_family_or_dimension_matches_nothing(test: str) -> None:
    assert _steps(f"-m set {test} -j DROP", FOREIGN)[0] == Never()
    assert len(_steps(f"-m set ! {test} -j DROP", FOREIGN)) == 1


def test_nonempty_set_that_rules_write_is_unknown() -> None:
    """Entries that rules added before the capture cannot be distinguished from static entries."""
    rules = "-A INPUT -j SET --add-set s src\n-A INPUT -m set --match-set s src -j DROP\n"
    found = read(f"*filter\n{rules}COMMIT\n", 4, "create s hash:ip\nadd s 10.0.0.1\n").chains["filter INPUT"].rules
    assert [type(rule.steps[0]) for rule in found] == [Unknown, Unknown]
    found = read(f"*filter\n{rules}COMMIT\n", 4, "create s hash:ip\n").chains["filter INPUT"].rules
    assert isinstance(found[1].steps[0], InSet)


def _steps(rule: str, sets: str) -> tuple[Step, ...]:
    rules = read(f"*filter\n-A INPUT {rule}\nCOMMIT\n", 4, sets)
    return rules.chains["filter INPUT"].rules[0].steps


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("add s 10.0.0.1", f"line 1: the set 's' was not created above: {CAPTURE_AGAIN}"),
        ("Name: s\nType: hash:ip", "line 1: 'Name: s' is not a line of `ipset save`"),
        ("create s", "line 1: create needs at least 2 arguments"),
        ("create s hash:ip,port\nadd s 10.0.0.1", "line 2: '10.0.0.1' is not an entry of a set of ip,port"),
        ("create s hash:ip\nadd s 10.0.0", "line 2: invalid IPv4 address '10.0.0'"),
    ],
)
def test_invalid_captures_are_rejected_with_the_line(text: str, message: str) -> None:
    with pytest.raises(CaptureError) as caught:
        read_sets(text)
    assert str(caught.value) == message
