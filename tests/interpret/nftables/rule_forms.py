"""Forms of nft rules, each with the steps of the IPv4 rules that it is parsed into; and the sets and maps they use."""

from fractions import Fraction
from ipaddress import ip_address, ip_network
from typing import NamedTuple

from knft.interpret.ranges import Ranges
from knft.interpret.rules import (
    AddressType,
    AddToSet,
    DnatMapLookup,
    Field,
    HashedFields,
    HasState,
    InSet,
    Interface,
    LookUpPriority,
    Marked,
    Never,
    Probability,
    RandomNumber,
    SetMark,
    SetPriority,
    State,
    Step,
    Translate,
    Translated,
    Unknown,
    Verdict,
    VmapLookup,
    Within,
)

ACCEPT, DROP, REJECT, RETURN = (Verdict(kind) for kind in ("accept", "drop", "reject", "return"))
JUMP = Verdict("jump", "inet t there")
TCP, UDP = Within(Field.PROTOCOL, ((6, 6),)), Within(Field.PROTOCOL, ((17, 17),))
ALL_BITS = 0xFFFFFFFF


def number(address: str) -> int:
    return int(ip_address(address))


def addresses(*texts: str) -> Ranges:
    nets = [ip_network(text) for text in texts]
    return tuple((int(net[0]), int(net[-1])) for net in nets)


def to_port(*ports: int) -> Within:
    return Within(Field.DESTINATION_PORT, tuple((port, port) for port in ports))


def input_interface(*names: str, inverted: bool = False) -> Interface:
    return Interface(Field.INPUT, names, inverted)


def state(*states: State, inverted: bool = False) -> HasState:
    return HasState(frozenset(states), inverted)


def destination(*types: str, inverted: bool = False) -> AddressType:
    return AddressType(Field.DESTINATION, frozenset(types), inverted)


FROM_TEN = Within(Field.SOURCE, addresses("10.0.0.0/8"))
NEW, NOT_NEW = state("new"), state("new", inverted=True)
KEY = (Field.DESTINATION, Field.PROTOCOL, Field.DESTINATION_PORT)
CONTAINERS = """
table inet t {
    set nets { type ipv4_addr; flags interval; elements = { 10.0.0.0/8, 192.0.2.1-192.0.2.9 comment "x", 192.0.2.20 } }
    set wide { type ipv4_addr . inet_proto . inet_service; flags interval;
        elements = { 10.0.0.0/8 . tcp . 80-90, 192.0.2.4 . udp . 53 } }
    set old { type ipv4_addr; timeout 1h; elements = { 192.0.2.1 timeout 30m comment "c" } }
    set counted { type ipv4_addr; counter; elements = { 192.0.2.2 } }
    set seen { type ipv4_addr; flags dynamic, timeout; timeout 3h; size 1000; }
    set stuck { typeof ip saddr . numgen random mod 65536; flags dynamic, timeout; timeout 1h; }
    set ranked { typeof ip saddr . meta priority; flags dynamic, timeout; timeout 1h; }
    map ranks { typeof ip daddr . numgen random mod 65536 : meta priority; elements = { 192.0.2.4 . 0 : 1:2 } }
    set learned { type ether_addr; flags dynamic; size 100; }
    set names { type ifname; flags interval; elements = { "lo", "veth*" } }
    set marks { type mark; elements = { 0x10, 0x20 } }
    map go { type ipv4_addr : verdict; elements = { 192.0.2.4 : accept, 192.0.2.5 comment "q" : goto there } }
    map most { type ipv4_addr : verdict; flags interval; elements = { 192.0.2.4 : drop, * : jump there } }
    map by_name { type ifname : verdict; elements = { "eth0" : jump there, "eth1" : jump there, "lo" : accept } }
    map endpoints { typeof ip daddr . tcp dport . numgen random mod 65536 : ip daddr . tcp dport;
        elements = { 192.0.2.1 . 80 . 0 : 10.0.0.1 . 8080, 192.0.2.1 . 80 . 1 : 10.0.0.2 . 8080 } }
    map slots { typeof meta priority . numgen random mod 65536 : ip daddr . tcp dport;
        elements = { 1:2 . 0 : 10.0.0.1 . 8080, 1:2 . 1 : 10.0.0.2 . 8080 } }
    map one { type inet_service : ipv4_addr; flags interval; elements = { 80-90 : 10.0.0.1 } }
    map marking { type ipv4_addr : mark; elements = { 192.0.2.4 : 0x10 } }
    counter named { }
    chain there { }
"""


class Form(NamedTuple):
    """An nft rule as text, and the steps of the IPv4 rules that it is parsed into."""

    text: str
    rules: tuple[tuple[Step, ...], ...]


def form(text: str, *steps: Step) -> Form:
    return Form(text, (steps,))


VERDICTS = (
    form("accept", ACCEPT),
    form("drop", DROP),
    form("reject", REJECT),
    form("meta l4proto tcp reject with tcp reset", TCP, Verdict("reject", reply="tcp-reset")),
    form("reject with icmp type host-unreachable", Verdict("reject", reply="host-unreachable")),
    form("return", RETURN),
    form("continue"),
    form("jump there", JUMP),
    form("goto there", Verdict("goto", "inet t there")),
    form("counter name named drop", DROP),
)
FIELDS = (
    form("ip saddr 10.0.0.0/8 accept", FROM_TEN, ACCEPT),
    form("ip saddr != 10.0.0.0/8 accept", Within(Field.SOURCE, FROM_TEN.ranges, inverted=True), ACCEPT),
    form(
        "ip daddr 192.0.2.1-192.0.2.9 drop",
        Within(Field.DESTINATION, ((number("192.0.2.1"), number("192.0.2.9")),)),
        DROP,
    ),
    form(
        "ip saddr { 10.0.0.0/8, 192.0.2.1 } drop", Within(Field.SOURCE, addresses("10.0.0.0/8", "192.0.2.1/32")), DROP
    ),
    form(
        "ip saddr != { 10.0.0.1, 10.0.0.2 } drop",
        Within(Field.SOURCE, ((number("10.0.0.1"), number("10.0.0.2")),), inverted=True),
        DROP,
    ),
    form("ip saddr & 255.255.0.0 == 10.0.0.0 drop", Within(Field.SOURCE, addresses("10.0.0.0/16")), DROP),
    form(
        "ip saddr & 255.255.255.0 == { 10.0.0.0, 10.9.1.0 } drop",
        Within(Field.SOURCE, addresses("10.0.0.0/24", "10.9.1.0/24")),
        DROP,
    ),
    form("ip daddr & 0.0.0.255 == 0.0.0.5 accept", Unknown("ip daddr & 0.0.0.255 0.0.0.5"), ACCEPT),
    form("ip6 saddr fe80::/10 accept", Never()),
    form("meta l4proto { tcp, udp } accept", Within(Field.PROTOCOL, ((6, 6), (17, 17))), ACCEPT),
    form("ip protocol icmp accept", Within(Field.PROTOCOL, ((1, 1),)), ACCEPT),
    form("ip6 nexthdr tcp accept", Never()),
    form("meta nfproto ipv4 accept", ACCEPT),
    form("meta nfproto ipv6 accept", Never()),
    form("meta protocol ip6 accept", Never()),
    form("tcp dport 80 accept", TCP, to_port(80), ACCEPT),
    form("tcp dport != 80 accept", TCP, Within(Field.DESTINATION_PORT, ((80, 80),), inverted=True), ACCEPT),
    form("meta l4proto udp udp sport 53 accept", UDP, Within(Field.SOURCE_PORT, ((53, 53),)), ACCEPT),
    form("tcp dport { 80, 90-99 } accept", TCP, Within(Field.DESTINATION_PORT, ((80, 80), (90, 99))), ACCEPT),
    form("tcp dport >= 1024 accept", TCP, Within(Field.DESTINATION_PORT, ((1024, 65535),)), ACCEPT),
    form("tcp dport < 1024 accept", TCP, Within(Field.DESTINATION_PORT, ((0, 1023),)), ACCEPT),
    form("th dport 53 accept", to_port(53), ACCEPT),
    form("ip frag-off & 0x1fff != 0 drop", Never()),
    form("exthdr frag exists drop", Never()),
    form("exthdr frag missing accept", ACCEPT),
    form("rt type 0 drop", Never()),
)
SETS = (
    form("ip saddr @nets drop", InSet("inet t nets", (Field.SOURCE,)), DROP),
    form("ip saddr != @nets drop", InSet("inet t nets", (Field.SOURCE,), inverted=True), DROP),
    form("ip daddr @old drop", InSet("inet t old", (Field.DESTINATION,)), DROP),
    form("ip daddr @counted drop", InSet("inet t counted", (Field.DESTINATION,)), DROP),
    form("ip daddr . meta l4proto . th dport @wide drop", InSet("inet t wide", KEY), DROP),
    form(
        "ip daddr . tcp dport { 192.0.2.4 . 80-90 } drop",
        TCP,
        InSet("inet t {here} #1", (Field.DESTINATION, Field.DESTINATION_PORT)),
        DROP,
    ),
    form("update @seen { ip saddr }", AddToSet("inet t seen", (Field.SOURCE,))),
    form("update @seen { ip saddr timeout 10s } accept", AddToSet("inet t seen", (Field.SOURCE,), 10), ACCEPT),
    form(
        "add @seen { ip saddr limit rate 10/second } drop",
        AddToSet("inet t seen", (Field.SOURCE,)),
        Unknown("add @seen { ip saddr }"),
        DROP,
    ),
    form("ip saddr . numgen random mod 1 offset 7 @stuck accept", InSet("inet t stuck", (Field.SOURCE, 7)), ACCEPT),
    form(
        "update @stuck { ip saddr . numgen random mod 1 offset 7 timeout 5s }",
        AddToSet("inet t stuck", (Field.SOURCE, 7), 5),
    ),
    form("update @learned { ether saddr }", Unknown("update @learned { ether saddr }")),
    form("ether saddr @learned drop", Unknown("ether saddr @learned"), DROP),
)
INTERFACES = (
    form("iifname eth0 accept", input_interface("eth0"), ACCEPT),
    form('iifname "eth*" accept', input_interface("eth*"), ACCEPT),
    form('iifname != "eth0" accept', input_interface("eth0", inverted=True), ACCEPT),
    form("iif lo accept", input_interface("lo"), ACCEPT),
    form("iifname @names accept", input_interface("lo", "veth*"), ACCEPT),
    form("oifname eth0 accept", Interface(Field.OUTPUT, ("eth0",)), ACCEPT),
    form("iif 99 accept", Unknown("iif 99"), ACCEPT),
    form(
        'iifname . oifname { "eth0" . "eth1" } accept',
        input_interface("eth0"),
        Interface(Field.OUTPUT, ("eth1",)),
        ACCEPT,
    ),
    Form("iifname vmap @by_name", ((input_interface("lo"), ACCEPT), (input_interface("eth0", "eth1"), JUMP))),
)
STATES = (
    form("ct state new accept", NEW, ACCEPT),
    form("ct state established,related accept", state("established", "related"), ACCEPT),
    form("ct state { established, related } accept", state("established", "related"), ACCEPT),
    form("ct state != new accept", NOT_NEW, ACCEPT),
    form("ct state ! established,related accept", state("established", "related", inverted=True), ACCEPT),
    form("ct state & (established|related) != 0 accept", state("established", "related"), ACCEPT),
    form("ct state == established,related drop", Never()),
    Form(
        "ct state vmap { established : accept, related : accept, invalid : drop }",
        ((state("invalid"), DROP), (state("established", "related"), ACCEPT)),
    ),
    form("ct status dnat accept", Translated("dnat"), ACCEPT),
    form("ct status & dnat == dnat accept", Translated("dnat"), ACCEPT),
    form("ct status ! dnat accept", Translated("dnat", inverted=True), ACCEPT),
    Form(
        "ct status dnat,snat accept",
        ((Translated("dnat"), ACCEPT), (Translated("dnat", inverted=True), Translated("snat"), ACCEPT)),
    ),
    form("ct status assured accept", Unknown("ct status assured"), ACCEPT),
    Form("ct direction original accept", ((NEW, ACCEPT), (NOT_NEW, Unknown("ct direction original"), ACCEPT))),
    form("ct direction reply accept", NOT_NEW, Unknown("ct direction reply"), ACCEPT),
    form(
        "ct original ip daddr 192.0.2.1 accept", Within(Field.ORIGINAL_DESTINATION, addresses("192.0.2.1/32")), ACCEPT
    ),
    form("meta l4proto tcp ct original proto-dst 80 accept", TCP, Within(Field.ORIGINAL_PORT, ((80, 80),)), ACCEPT),
    form("ct original ip6 daddr ::1 accept", Never()),
    form("ct mark 1 accept", Unknown("ct mark 1"), ACCEPT),
    form("ct mark set meta mark"),
    Form(
        "tcp flags & (fin|syn|rst|ack) == syn accept",
        ((TCP, NEW, ACCEPT), (TCP, NOT_NEW, Unknown("{tcp flags}"), ACCEPT)),
    ),
    form("tcp flags & (fin|syn) == fin|syn drop", TCP, NOT_NEW, Unknown("{tcp flags}"), DROP),
    form("ct state new tcp flags != syn drop", Never()),
)
MARKS = (
    form("meta mark 0x10 accept", Marked(ALL_BITS, ((16, 16),)), ACCEPT),
    form("meta mark and 0x4000 != 0 accept", Marked(0x4000, ((0, 0),), inverted=True), ACCEPT),
    form("meta mark and 0x80000000 != 0 accept", Marked(1 << 31, ((0, 0),), inverted=True), ACCEPT),
    form("meta mark and 0x4000 == 0x4000 accept", Marked(0x4000, ((0x4000, 0x4000),)), ACCEPT),
    form("meta mark { 0x10, 0x20 } accept", Marked(ALL_BITS, ((16, 16), (32, 32))), ACCEPT),
    form("meta mark @marks accept", Marked(ALL_BITS, ((16, 16), (32, 32))), ACCEPT),
    form("meta mark 0x10-0x21 accept", Marked(ALL_BITS, ((16, 33),)), ACCEPT),
    form("meta mark set 0x10", SetMark(0, 16)),
    form("meta mark set mark or 0x4000", SetMark(ALL_BITS ^ 0x4000, 0x4000)),
    form("meta mark set mark and 0xff", SetMark(0xFF, 0)),
    form("meta mark set mark xor 0x4000", SetMark(ALL_BITS, 0x4000)),
    form("meta mark set mark and 0xffff00ff or 0x1000", SetMark(0xFFFF00FF, 0x1000)),
    form("meta mark set (mark and 0xff) xor 0x10", SetMark(0xFF, 0x10)),
    form("meta mark set ct mark", Unknown("meta mark set ct mark")),
    form("meta mark set ip saddr map @marking", Within(Field.SOURCE, addresses("192.0.2.4/32")), SetMark(0, 16)),
    Form(
        "meta mark vmap { 1 : drop, 2 : accept }",
        ((Marked(ALL_BITS, ((1, 1),)), DROP), (Marked(ALL_BITS, ((2, 2),)), ACCEPT)),
    ),
    form("meta mark vmap { 1 : jump there, 2 : accept }", Unknown("meta mark vmap { 1 : jump there, 2 : accept }")),
)
ROUTES = (
    form("fib daddr type local accept", destination("local"), ACCEPT),
    form("fib saddr type != local accept", AddressType(Field.SOURCE, frozenset({"local"}), inverted=True), ACCEPT),
    form("fib daddr type { local, broadcast } accept", destination("local", "broadcast"), ACCEPT),
    form("fib daddr . iif type broadcast accept", destination("broadcast"), ACCEPT),
    form("fib daddr . iif type local accept", destination("local"), Unknown("fib daddr . iif type local"), ACCEPT),
    Form(
        "fib daddr . iif type != { local, broadcast, multicast } drop",
        (
            (destination("local"), Unknown("fib daddr . iif type != { local, broadcast, multicast }"), DROP),
            (destination("local", inverted=True), destination("local", "broadcast", "multicast", inverted=True), DROP),
        ),
    ),
    form("fib saddr . iif oif missing drop", Never()),
    form("fib saddr . mark . iif oif missing drop", Never()),
    form("fib saddr . iif oif exists accept", ACCEPT),
    form("meta pkttype { broadcast, multicast } drop", destination("broadcast", "multicast"), DROP),
    form("meta pkttype host accept", destination("broadcast", "multicast", inverted=True), ACCEPT),
)
MAPS = (
    form("ip daddr vmap @go", VmapLookup("inet t go", (Field.DESTINATION,))),
    Form(
        "ip daddr vmap @most",
        (
            (VmapLookup("inet t most", (Field.DESTINATION,)),),
            (InSet("inet t most", (Field.DESTINATION,), inverted=True), JUMP),
        ),
    ),
    form(
        "tcp dport vmap { 80 : accept, 500-600 : drop }", TCP, VmapLookup("inet t {here} #1", (Field.DESTINATION_PORT,))
    ),
    form(
        "numgen random mod 3 vmap { 0 : accept, 1 : drop, 2 : jump there }",
        VmapLookup("inet t {here} #1", (RandomNumber(3),)),
    ),
    form("numgen random mod 3 0 accept", Probability(Fraction(1, 3)), ACCEPT),
    form("numgen inc mod 10 offset 5 < 8 accept", Probability(Fraction(3, 10)), ACCEPT),
    form("numgen random mod 3 < 2 accept", Probability(Fraction(2, 3)), ACCEPT),
    form("jhash ip saddr mod 4 vmap { 0 : accept }", Unknown("{jhash}")),
)
TRANSLATIONS = (
    form("dnat ip to 10.0.0.1", Translate("dnat", addresses("10.0.0.1/32"))),
    form("meta l4proto tcp dnat ip to 10.0.0.1:80", TCP, Translate("dnat", addresses("10.0.0.1/32"), ((80, 80),))),
    form(
        "meta l4proto tcp dnat ip to 10.0.0.1-10.0.0.9:80-90 random",
        TCP,
        Translate("dnat", ((number("10.0.0.1"), number("10.0.0.9")),), ((80, 90),)),
    ),
    form("meta l4proto tcp dnat ip6 to [fd00::1]:80", Never()),
    form("dnat ip to 10.0.0.0/24", Translate("dnat", addresses("10.0.0.0/24"))),
    form("meta l4proto tcp dnat to :80", TCP, Translate("dnat", ports=((80, 80),))),
    form(
        "meta l4proto tcp redirect to :8080", TCP, Translate("dnat", ports=((8080, 8080),), to_interface_address=True)
    ),
    form("redirect", Translate("dnat", to_interface_address=True)),
    form(
        "meta l4proto tcp redirect to : tcp dport map { 80 : 8080 }",
        TCP,
        to_port(80),
        Translate("dnat", ports=((8080, 8080),), to_interface_address=True),
    ),
    form("dnat ip to tcp dport map @one", TCP, DnatMapLookup("inet t one", (Field.DESTINATION_PORT,))),
    form(
        "dnat ip to ip daddr . tcp dport . numgen random mod 2 map @endpoints",
        TCP,
        DnatMapLookup("inet t endpoints", (Field.DESTINATION, Field.DESTINATION_PORT, RandomNumber(2))),
    ),
    form(
        "meta priority set 1:2 dnat ip to meta priority . jhash ip saddr . tcp sport mod 2 seed 0x7 map @slots",
        SetPriority(0x10002),
        TCP,
        DnatMapLookup(
            "inet t slots",
            (Field.PRIORITY, HashedFields(((Field.SOURCE, 4), (Field.SOURCE_PORT, 2)), 2, 7)),
        ),
    ),
    form(
        "meta l4proto tcp meta priority set 1:2 dnat ip to meta priority . jhash ip saddr mod 2 seed 0x7 map @slots",
        TCP,
        SetPriority(0x10002),
        DnatMapLookup("inet t slots", (Field.PRIORITY, HashedFields(((Field.SOURCE, 4),), 2, 7))),
    ),
    form("jhash ip saddr mod 2 seed 0x7 1 accept", Unknown("jhash ip saddr mod 2 seed 0x7 1"), ACCEPT),
    form(
        "dnat ip to ip daddr . tcp dport . numgen random mod 1 map @endpoints",
        TCP,
        DnatMapLookup("inet t endpoints", (Field.DESTINATION, Field.DESTINATION_PORT, 0)),
    ),
    form(
        "meta l4proto tcp dnat ip addr . port to numgen random mod 2 map { 0 : 10.0.0.1 . 80, 1 : 10.0.0.2 . 81 }",
        TCP,
        DnatMapLookup("inet t {here} #1", (RandomNumber(2),)),
    ),
    form(
        "meta l4proto tcp dnat ip to 10.0.0.1 : tcp dport map { 80 : 8080 }",
        TCP,
        DnatMapLookup("inet t {here} #1 with 167772161-167772161", (Field.DESTINATION_PORT,)),
    ),
    form("dnat ip prefix to ip daddr map { 10.0.0.0/24 : 10.1.0.0/24 }", Unknown("{netmap}")),
)
SOURCES = (
    form("masquerade", Translate("snat", to_interface_address=True)),
    form("masquerade fully-random", Translate("snat", to_interface_address=True)),
    form(
        "meta l4proto tcp masquerade to :1024-2048",
        TCP,
        Translate("snat", ports=((1024, 2048),), to_interface_address=True),
    ),
    form("snat ip to 10.0.0.1-10.0.0.9", Translate("snat", ((number("10.0.0.1"), number("10.0.0.9")),))),
    form(
        "snat ip to numgen inc mod 2 map { 0 : 10.0.0.1, 1 : 10.0.0.3 }",
        Translate("snat", addresses("10.0.0.1/32", "10.0.0.3/32")),
    ),
    form(
        "snat ip to ip saddr map { 192.0.2.4 : 10.0.0.1 }",
        Within(Field.SOURCE, addresses("192.0.2.4/32")),
        Translate("snat", addresses("10.0.0.1/32")),
    ),
)
OTHERS = (
    form('limit rate 3/minute log prefix "x"'),
    form("counter"),
    form("ip saddr 10.0.0.1 ct count over 5 counter log group 2"),
    form("limit rate 10/second tcp dport 80 drop", TCP, to_port(80), Unknown("limit rate 10/second"), DROP),
    form("quota over 10 mbytes drop", Unknown("{quota}"), DROP),
    form("icmp type echo-request accept", Within(Field.PROTOCOL, ((1, 1),)), Unknown("icmp type echo-request"), ACCEPT),
    form("icmpv6 type nd-router-advert accept", Never()),
    form("socket transparent 1 accept", Unknown("{socket}"), ACCEPT),
    form("meta skuid 0 accept", Unknown("meta skuid 0"), ACCEPT),
    form("ip dscp set cs1"),
    form("meta priority set 1:1"),
    form("meta nftrace set 1"),
    form("meta priority set 1:2"),
    form("meta priority set ip daddr . numgen random mod 3 map @ranks"),
    form(
        "meta priority set ip daddr . numgen random mod 3 map @ranks update @ranked { ip saddr . meta priority }",
        LookUpPriority("inet t ranks", (Field.DESTINATION, RandomNumber(3))),
        AddToSet("inet t ranked", (Field.SOURCE, Field.PRIORITY)),
    ),
    form(
        "meta priority set 1:2 ip saddr . meta priority @ranked meta priority set none accept",
        SetPriority(0x10002),
        InSet("inet t ranked", (Field.SOURCE, Field.PRIORITY)),
        SetPriority(0),
        ACCEPT,
    ),
    form("meta priority set ct mark map { 1 : 1:2 } accept", SetPriority(None), ACCEPT),
    form("meta priority 1:2 accept", Unknown("meta priority 1:2"), ACCEPT),
    form("meta priority { 1:2, 1:3 } accept", Unknown("{set}"), ACCEPT),
    form("ip ttl set 5", Unknown("ip ttl set 5")),
    form("ip daddr set 192.0.2.4", Unknown("ip daddr set 192.0.2.4")),
    form("ct zone set 1", Unknown("ct zone set 1")),
    form("tcp dport 80 jump { accept; }", TCP, to_port(80), Unknown("jump { accept }")),
    form("meta mark set 1 iifname vmap { eth0 : accept, eth1 : drop }", SetMark(0, 1), Unknown("{after an action}")),
)  # fmt: skip
CHAINS: dict[str, tuple[Form, ...]] = {
    "filter hook prerouting priority mangle": (
        *VERDICTS, *FIELDS, *SETS, *STATES, *MARKS, *ROUTES, *MAPS, *OTHERS,
        form("notrack", Unknown("notrack")),
        form("meta l4proto tcp tproxy ip to 127.0.0.1:50080", TCP, Unknown("{tproxy}")),
    ),
    "filter hook forward priority 0": INTERFACES,
    "nat hook prerouting priority dstnat": TRANSLATIONS,
    "nat hook postrouting priority srcnat": SOURCES,
}  # fmt: skip
PLACED = [(hook, form) for hook, forms in CHAINS.items() for form in forms]


def chain(at: int) -> str:
    """Return the chain of one form; nft checks that it is reachable from the hook that the form requires."""
    hook, form = PLACED[at]
    kind, _, point, *_ = hook.split()
    return f"chain c{at} {{ type {kind} hook {point} priority {at}; {form.text}\n}}"
