"""Forms of iptables rules and the steps that they have to be parsed into, for IPv4, IPv6 and both.

Each form is one rule in a chain of its own. ``test_rule_forms`` loads them and prints them with the real programs.
"""

from fractions import Fraction
from typing import Literal, NamedTuple

from knft.interpret.ranges import network, single
from knft.interpret.rules import (
    AddressType,
    AddToSet,
    Field,
    HasState,
    InSet,
    Interface,
    Marked,
    Never,
    Probability,
    SetMark,
    State,
    Step,
    Translate,
    Translated,
    Unknown,
    Verdict,
    Within,
)

ALL_BITS = 0xFFFFFFFF


class Form(NamedTuple):
    """A rule, and the steps of each alternative that it is parsed into."""

    text: str
    alternatives: tuple[tuple[Step, ...], ...]
    table: str = "mangle"


def single_form(text: str, *steps: Step, table: str = "mangle") -> Form:
    return Form(text, (steps,), table)


def ipv4_number(text: str) -> int:
    first, second, third, fourth = (int(part) for part in text.split("."))
    return first << 24 | second << 16 | third << 8 | fourth


ACCEPT, DROP, REJECT, RETURN = (Verdict(kind) for kind in ("accept", "drop", "reject", "return"))
TCP, UDP, SCTP = (Within(Field.PROTOCOL, single(number)) for number in (6, 17, 132))
SOURCE: Literal[Field.SOURCE] = Field.SOURCE
DESTINATION: Literal[Field.DESTINATION] = Field.DESTINATION
SPORT, DPORT = Field.SOURCE_PORT, Field.DESTINATION_PORT
NEW_OR_RELATED: frozenset[State] = frozenset({"new", "related"})
ESTABLISHED: frozenset[State] = frozenset({"established"})
UNTRACKED_OR_INVALID: frozenset[State] = frozenset({"invalid", "untracked"})


def states(*names: State, inverted: bool = False) -> HasState:
    return HasState(frozenset(names), inverted)


def to_port(port: int) -> Within:
    return Within(DPORT, single(port))


BOTH = (
    single_form("-j ACCEPT", ACCEPT),
    single_form("-j DROP", DROP),
    single_form("-j RETURN", RETURN),
    single_form("-j OTHER", Verdict("jump", "mangle OTHER")),
    single_form("-g OTHER", Verdict("goto", "mangle OTHER")),
    single_form("-j REJECT", REJECT, table="filter"),
    single_form("-p tcp -j REJECT --reject-with tcp-reset", TCP, Verdict("reject", reply="tcp-reset"), table="filter"),
    single_form("-p tcp -j ACCEPT", TCP, ACCEPT),
    single_form("! -p udp -j ACCEPT", Within(Field.PROTOCOL, single(17), inverted=True), ACCEPT),
    single_form("-p 47 -j ACCEPT", Within(Field.PROTOCOL, single(47)), ACCEPT),
    single_form("-p esp -j ACCEPT", Within(Field.PROTOCOL, single(50)), ACCEPT),
    single_form("-p all -j ACCEPT", ACCEPT),
    single_form("-i eth0 -j ACCEPT", Interface(Field.INPUT, ("eth0",)), ACCEPT),
    single_form("! -i cali+ -j ACCEPT", Interface(Field.INPUT, ("cali*",), inverted=True), ACCEPT),
    single_form("-o eth+ -j ACCEPT", Interface(Field.OUTPUT, ("eth*",)), ACCEPT),
    single_form("! -o docker0 -j ACCEPT", Interface(Field.OUTPUT, ("docker0",), inverted=True), ACCEPT),
    single_form("-i + -j ACCEPT", ACCEPT),
    single_form("-p tcp -m tcp --dport 80 -j ACCEPT", TCP, to_port(80), ACCEPT),
    single_form("-m tcp -p tcp --dport 80 -j ACCEPT", TCP, to_port(80), ACCEPT),
    single_form("-p tcp --dport 80 -j ACCEPT", TCP, to_port(80), ACCEPT),
    single_form("-p udp --sport 1024: -j ACCEPT", UDP, Within(SPORT, ((1024, 65535),)), ACCEPT),
    single_form("-p udp ! --dport 5:53 -j ACCEPT", UDP, Within(DPORT, ((5, 53),), inverted=True), ACCEPT),
    single_form("-p sctp -m sctp --dport 5:9 -j ACCEPT", SCTP, Within(DPORT, ((5, 9),)), ACCEPT),
    single_form(
        "-p tcp -m multiport --dports 80,8000:8010,81 -j ACCEPT",
        TCP,
        Within(DPORT, ((80, 81), (8000, 8010))),
        ACCEPT,
    ),
    single_form(
        "-p tcp -m multiport ! --sports 80,443 -j ACCEPT",
        TCP,
        Within(SPORT, ((80, 80), (443, 443)), inverted=True),
        ACCEPT,
    ),
    Form(
        "-p tcp -m multiport --ports 80 -j ACCEPT",
        (
            (TCP, Within(SPORT, single(80)), ACCEPT),
            (TCP, Within(SPORT, single(80), inverted=True), to_port(80), ACCEPT),
        ),
    ),
    single_form(
        "-p tcp -m multiport ! --ports 80 -j ACCEPT",
        TCP,
        Within(SPORT, single(80), inverted=True),
        Within(DPORT, single(80), inverted=True),
        ACCEPT,
    ),
    Form(
        "-p tcp --syn -j ACCEPT",
        (
            (TCP, HasState(NEW_OR_RELATED), ACCEPT),
            (TCP, HasState(UNTRACKED_OR_INVALID), Unknown("-m tcp --tcp-flags FIN,SYN,RST,ACK SYN"), ACCEPT),
        ),
    ),
    Form(
        "-p tcp ! --syn -j DROP",
        (
            (TCP, HasState(ESTABLISHED), DROP),
            (TCP, HasState(UNTRACKED_OR_INVALID), Unknown("-m tcp ! --tcp-flags FIN,SYN,RST,ACK SYN"), DROP),
        ),
    ),
    Form(
        "-p tcp --tcp-flags ALL NONE -j DROP",
        ((TCP, HasState(UNTRACKED_OR_INVALID), Unknown("-m tcp --tcp-flags FIN,SYN,RST,PSH,ACK,URG NONE"), DROP),),
    ),
    Form(
        "-p tcp --tcp-flags RST RST -j DROP",
        (
            (TCP, HasState(ESTABLISHED), Unknown("-m tcp --tcp-flags RST RST"), DROP),
            (TCP, HasState(UNTRACKED_OR_INVALID), Unknown("-m tcp --tcp-flags RST RST"), DROP),
        ),
    ),
    single_form("-m mark --mark 0x4000/0x4000 -j ACCEPT", Marked(0x4000, single(0x4000)), ACCEPT),
    single_form("-m mark ! --mark 5 -j ACCEPT", Marked(ALL_BITS, single(5), inverted=True), ACCEPT),
    single_form("-m connmark --mark 5 -j ACCEPT", Unknown("-m connmark --mark 0x5"), ACCEPT),
    single_form("-m conntrack --ctstate NEW -j ACCEPT", states("new"), ACCEPT),
    single_form("-m state --state RELATED,ESTABLISHED -j ACCEPT", states("related", "established"), ACCEPT),
    single_form("-m conntrack --ctstate INVALID,UNTRACKED -j ACCEPT", states("invalid", "untracked"), ACCEPT),
    single_form("-m conntrack --ctstate DNAT -j ACCEPT", Translated("dnat"), ACCEPT),
    single_form(
        "-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP",
        states("related", "established", inverted=True),
        Translated("dnat", inverted=True),
        DROP,
    ),
    Form(
        "-m conntrack --ctstate NEW,SNAT,DNAT -j DROP",
        (
            (states("new"), DROP),
            (states("new", inverted=True), Translated("snat"), DROP),
            (states("new", inverted=True), Translated("snat", inverted=True), Translated("dnat"), DROP),
        ),
    ),
    single_form("-m conntrack --ctorigdstport 80 -j DROP", Within(Field.ORIGINAL_PORT, single(80)), DROP),
    single_form("-m conntrack --ctproto 6 -j DROP", TCP, DROP),
    single_form("-m conntrack --ctdir REPLY -j DROP", Unknown("-m conntrack --ctdir REPLY"), DROP),
    single_form("-m conntrack --ctstatus ASSURED -j DROP", Unknown("-m conntrack --ctstatus ASSURED"), DROP),
    single_form("-m addrtype --dst-type LOCAL -j ACCEPT", AddressType(DESTINATION, frozenset({"local"})), ACCEPT),
    single_form(
        "-m addrtype ! --src-type LOCAL --dst-type UNICAST,MULTICAST -j ACCEPT",
        AddressType(SOURCE, frozenset({"local"}), inverted=True),
        AddressType(DESTINATION, frozenset({"unicast", "multicast"})),
        ACCEPT,
    ),
    single_form("-m statistic --mode random --probability 0.3333333333 -j ACCEPT", Probability(Fraction(1, 3)), ACCEPT),
    single_form(
        "-m statistic --mode random --probability 0.0000714286 -j ACCEPT", Probability(Fraction(1, 14000)), ACCEPT
    ),
    single_form("-m statistic --mode random ! --probability 0.33 -j ACCEPT", Probability(Fraction(67, 100)), ACCEPT),
    single_form("-m statistic --mode nth --every 3 --packet 1 -j ACCEPT", Probability(Fraction(1, 3)), ACCEPT),
    single_form("-m statistic --mode nth ! --every 4 --packet 0 -j ACCEPT", Probability(Fraction(3, 4)), ACCEPT),
    single_form("-m recent --name a --set -j ACCEPT", AddToSet("recent a", (SOURCE,)), ACCEPT),
    single_form("-m recent --set", AddToSet("recent DEFAULT", (SOURCE,))),
    single_form(
        "-m recent --name a --rcheck --seconds 60 --reap -j ACCEPT", InSet("recent a", (SOURCE,), seconds=60), ACCEPT
    ),
    single_form("-m recent --name a ! --rcheck -j DROP", InSet("recent a", (SOURCE,), inverted=True), DROP),
    single_form(
        "-m recent --name a --update --seconds 60 --rdest -j ACCEPT",
        InSet("recent a", (DESTINATION,), seconds=60),
        AddToSet("recent a", (DESTINATION,)),
        ACCEPT,
    ),
    single_form("-m physdev ! --physdev-is-in -j ACCEPT", ACCEPT),
    single_form("-m physdev --physdev-is-in -j ACCEPT", Never(), ACCEPT),
    single_form("-m physdev --physdev-in eth+ -j ACCEPT", Never(), ACCEPT),
    single_form(
        "-m pkttype --pkt-type unicast -j ACCEPT",
        AddressType(DESTINATION, frozenset({"broadcast", "multicast"}), inverted=True),
        ACCEPT,
    ),
    single_form("-m pkttype --pkt-type broadcast -j DROP", AddressType(DESTINATION, frozenset({"broadcast"})), DROP),
    single_form("-m limit --limit 3/min -j ACCEPT", Unknown("-m limit --limit 3/min"), ACCEPT),
    single_form(
        "-m limit --limit 3/min -p tcp --dport 22 -j ACCEPT",
        TCP,
        to_port(22),
        Unknown("-m limit --limit 3/min"),
        ACCEPT,
    ),
    single_form('-m string --string "-x y" --algo bm -j DROP', Unknown('-m string --string "-x y" --algo bm'), DROP),
    single_form(
        "-m mac --mac-source 02:00:00:00:00:01 -j DROP", Unknown("-m mac --mac-source 02:00:00:00:00:01"), DROP
    ),
    single_form("-m length ! --length 10:20 -j DROP", Unknown("-m length ! --length 10:20"), DROP),
    single_form("-m socket --transparent -j ACCEPT", Unknown("-m socket --transparent"), ACCEPT),
    single_form("-m rpfilter --invert -j DROP", Never(), DROP),
    single_form("-m rpfilter --loose --validmark -j ACCEPT", ACCEPT),
    single_form('-m limit --limit 3/min -j LOG --log-prefix "a \\"b\\" -j DROP "'),
    single_form("-m comment --comment -j -j ACCEPT", ACCEPT),
    single_form('-m comment --comment "says nothing"'),
    single_form("-j NFLOG --nflog-group 3"),
    single_form("-j TRACE", table="raw"),
    single_form("-j CLASSIFY --set-class 1:1"),
    single_form("-j TOS --set-tos 0x10"),
    single_form("-j CONNMARK --save-mark"),
    single_form("-j CONNMARK --set-mark 3"),
    single_form(
        "-j CONNMARK --restore-mark",
        Unknown(f"-j CONNMARK --restore-mark --nfmask {ALL_BITS:#x} --ctmask {ALL_BITS:#x}"),
    ),
    single_form("-j MARK --set-mark 0x3/0x5", SetMark(ALL_BITS & ~0x7, 3)),
    single_form("-j MARK --set-xmark 0x3/0x5", SetMark(ALL_BITS & ~0x5, 3)),
    single_form("-j MARK --or-mark 0x4000", SetMark(ALL_BITS & ~0x4000, 0x4000)),
    single_form("-j MARK --and-mark 0xf0", SetMark(0xF0, 0)),
    single_form("-j MARK --xor-mark 0x4000", SetMark(ALL_BITS, 0x4000)),
    single_form("-j NFQUEUE --queue-num 3", Unknown("-j NFQUEUE --queue-num 3")),
    single_form("-j CT --notrack", Unknown("-j CT --notrack"), table="raw"),
    single_form(
        "-p tcp -j REDIRECT --to-ports 15001",
        TCP,
        Translate("dnat", ports=single(15001), to_interface_address=True),
        table="nat",
    ),
    single_form("-p tcp -j REDIRECT", TCP, Translate("dnat", to_interface_address=True), table="nat"),
    single_form("-p tcp -j DNAT --to-destination :80", TCP, Translate("dnat", ports=single(80)), table="nat"),
)

IPV4 = (
    single_form("-s 10.0.0.1 -j ACCEPT", Within(SOURCE, single(ipv4_number("10.0.0.1"))), ACCEPT),
    single_form(
        "-s 10.0.0.9/8 ! -d 127.0.0.0/8 -j ACCEPT",
        Within(SOURCE, network(ipv4_number("10.0.0.0"), 8, 32)),
        Within(DESTINATION, network(ipv4_number("127.0.0.0"), 8, 32), inverted=True),
        ACCEPT,
    ),
    single_form(
        "-d 10.0.0.0/255.255.0.0 -j ACCEPT", Within(DESTINATION, network(ipv4_number("10.0.0.0"), 16, 32)), ACCEPT
    ),
    single_form("-s 10.0.0.1/255.0.255.0 -j ACCEPT", Unknown("-s 10.0.0.0/255.0.255.0"), ACCEPT),
    single_form("-s 0.0.0.0/0 -j ACCEPT", ACCEPT),
    single_form("-f -j ACCEPT", Never(), ACCEPT),
    single_form("! -f -j ACCEPT", ACCEPT),
    single_form(
        "-m iprange ! --src-range 10.0.0.1-10.0.0.9 -j ACCEPT",
        Within(SOURCE, ((ipv4_number("10.0.0.1"), ipv4_number("10.0.0.9")),), inverted=True),
        ACCEPT,
    ),
    single_form("-p icmp -m icmp --icmp-type any -j ACCEPT", Within(Field.PROTOCOL, single(1)), ACCEPT),
    single_form(
        "-p icmp --icmp-type echo-request -j ACCEPT",
        Within(Field.PROTOCOL, single(1)),
        Unknown("-m icmp --icmp-type 8"),
        ACCEPT,
    ),
    single_form(
        "-m conntrack ! --ctorigdst 10.0.0.0/8 -j DROP",
        Within(Field.ORIGINAL_DESTINATION, network(ipv4_number("10.0.0.0"), 8, 32), inverted=True),
        DROP,
    ),
    single_form("-m ttl --ttl-eq 1 -j DROP", Unknown("-m ttl --ttl-eq 1"), DROP),
    single_form(
        "-p tcp -j DNAT --to-destination 10.0.0.1:80",
        TCP,
        Translate("dnat", single(ipv4_number("10.0.0.1")), single(80)),
        table="nat",
    ),
    single_form(
        "-j DNAT --to-destination 10.0.0.1-10.0.0.3 --persistent",
        Translate("dnat", ((ipv4_number("10.0.0.1"), ipv4_number("10.0.0.3")),)),
        table="nat",
    ),
    single_form(
        "-p tcp -j DNAT --to-destination 10.0.0.1:80-90/81",
        TCP,
        Unknown("-j DNAT --to-destination 10.0.0.1:80-90/81"),
        table="nat",
    ),
    single_form("-j NETMAP --to 10.1.0.0/16", Unknown("-j NETMAP --to 10.1.0.0/16"), table="nat"),
)

IPV6 = (
    single_form("-s fd00::1 -j ACCEPT", Within(SOURCE, single(0xFD00 << 112 | 1)), ACCEPT),
    single_form("! -d ::1/128 -j ACCEPT", Within(DESTINATION, single(1), inverted=True), ACCEPT),
    single_form("-d fd00::/ffff:: -j ACCEPT", Within(DESTINATION, network(0xFD00 << 112, 16, 128)), ACCEPT),
    single_form("-s ::/0 -j ACCEPT", ACCEPT),
    single_form(
        "-p ipv6-icmp -m icmp6 --icmpv6-type 135 -j ACCEPT",
        Within(Field.PROTOCOL, single(58)),
        Unknown("-m icmp6 --icmpv6-type 135"),
        ACCEPT,
    ),
    single_form("-m hl --hl-eq 1 -j DROP", Unknown("-m hl --hl-eq 1"), DROP),
    single_form(
        "-p tcp -j DNAT --to-destination [fd00::1]:80",
        TCP,
        Translate("dnat", single(0xFD00 << 112 | 1), single(80)),
        table="nat",
    ),
    single_form("-j DNAT --to-destination fd00::1", Translate("dnat", single(0xFD00 << 112 | 1)), table="nat"),
    single_form(
        "-j DNAT --to-destination fd00::1-fd00::3",
        Translate("dnat", ((0xFD00 << 112 | 1, 0xFD00 << 112 | 3),)),
        table="nat",
    ),
)

AT_THE_END = (
    single_form("-j MASQUERADE --random-fully", Translate("snat", to_interface_address=True), table="nat"),
    single_form(
        "-p tcp -j MASQUERADE --to-ports 1024-2047",
        TCP,
        Translate("snat", ports=((1024, 2047),), to_interface_address=True),
        table="nat",
    ),
)
"""Forms that are only valid in chains called from POSTROUTING."""

OF_SETS = (
    single_form("-m set --match-set ips src -j DROP", InSet("ipset ips", (SOURCE,)), DROP),
    single_form("-m set ! --match-set ips dst,dst -j DROP", InSet("ipset ips", (DESTINATION,), inverted=True), DROP),
    single_form(
        "-m set --match-set frontends dst,dst -j DROP",
        InSet("ipset frontends", (DESTINATION, Field.PROTOCOL, DPORT)),
        DROP,
    ),
    single_form(
        "-m set --match-set loop dst,dst,src -j DROP",
        InSet("ipset loop", (DESTINATION, Field.PROTOCOL, DPORT, SOURCE)),
        DROP,
    ),
    single_form("-m set --match-set ports src -j DROP", InSet("ipset ports", (Field.PROTOCOL, SPORT)), DROP),
    single_form("-m set --match-set frontends dst -j DROP", Never(), DROP),
    single_form(
        "-m set --match-set interfaces src,src -j DROP", Unknown("-m set --match-set interfaces src,src"), DROP
    ),
    single_form(
        "-m set --match-set ips src --return-nomatch -j DROP",
        Unknown("-m set --match-set ips src --return-nomatch"),
        DROP,
    ),
    single_form("-j SET --add-set seen src --exist --timeout 60", AddToSet("ipset seen", (SOURCE,), 60)),
    single_form("-m set --match-set seen src -j DROP", InSet("ipset seen", (SOURCE,)), DROP),
    single_form("-j SET --del-set others src", Unknown("-j SET --del-set others src")),
)
"""Forms that match the sets in SETS of ``test_rule_forms``."""
