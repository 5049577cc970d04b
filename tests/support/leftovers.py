"""Leftovers of kube-proxy in each mode, and rules and tables of other programs, as input of the tools.

See docs/behaviour/iptables.md#chain-names, docs/behaviour/iptables.md#jump-rules, docs/behaviour/ipvs.md#ipsets and
docs/behaviour/ipvs.md#chains.
"""

import hashlib
import re
from base64 import b32encode
from dataclasses import dataclass
from pathlib import Path
from string import Template

RULES = Path(__file__).parents[1] / "leftovers"


@dataclass(frozen=True, slots=True)
class Family:
    """An IP family: names of its tools and ipsets, and the addresses in the leftovers."""

    iptables: str
    inet: str
    loopback: str
    cluster_ip: str
    load_balancer_ip: str
    endpoints: tuple[str, ...]
    source: str
    set_prefix: str

    def with_port(self, endpoint: str, port: int = 8080) -> str:
        return f"[{endpoint}]:{port}" if ":" in endpoint else f"{endpoint}:{port}"


IPV4 = Family(
    "iptables", "inet", "127.0.0.0/8", "10.96.0.10", "203.0.113.9", ("10.244.1.11", "10.244.2.11"),
    "198.51.100.0/24", "KUBE-",
)  # fmt: skip
IPV6 = Family(
    "ip6tables", "inet6", "::1/128", "fd00:10:96::10", "2001:db8:cb::9",
    ("fd00:10:244:1::11", "fd00:10:244:2::11"), "2001:db8:5::/64", "KUBE-6-",
)  # fmt: skip
FAMILIES = (IPV4, IPV6)


def service_hash(text: str) -> str:
    """Return the hash in the name of a chain (docs/behaviour/iptables.md#chain-names), without the prefix."""
    return b32encode(hashlib.sha256(text.encode()).digest()).decode()[:16]


_HASH, _HASH3 = "hash:ip,port", "hash:ip,port,ip"
SET_TYPES = {
    "LOOP-BACK": _HASH3,
    "CLUSTER-IP": _HASH,
    "EXTERNAL-IP": _HASH,
    "EXTERNAL-IP-LOCAL": _HASH,
    "LOAD-BALANCER": _HASH,
    "LOAD-BALANCER-FW": _HASH,
    "LOAD-BALANCER-LOCAL": _HASH,
    "LOAD-BALANCER-SOURCE-IP": _HASH3,
    "LOAD-BALANCER-SOURCE-CIDR": "hash:ip,port,net",
    "NODE-PORT-TCP": "bitmap:port",
    "NODE-PORT-LOCAL-TCP": "bitmap:port",
    "NODE-PORT-UDP": "bitmap:port",
    "NODE-PORT-LOCAL-UDP": "bitmap:port",
    "NODE-PORT-SCTP-HASH": _HASH,
    "NODE-PORT-LOCAL-SCTP-HASH": _HASH,
    "HEALTH-CHECK-NODE-PORT": "bitmap:port",
    "IPVS-IPS": "hash:ip",
}


def set_name(family: Family, name: str) -> str:
    """Return the name of an ipset in a family, cut to ipset's limit of 31 characters."""
    return (family.set_prefix + name)[:31]


def ipsets(family: Family) -> str:
    """Return input of ``ipset restore`` for all ipsets of docs/behaviour/ipvs.md#ipsets, some with elements."""
    hashed = f"family {family.inet} hashsize 1024 maxelem 65536"
    created = [
        f"create {set_name(family, name)} {kind} {'range 0-65535' if kind == 'bitmap:port' else hashed}"
        for name, kind in SET_TYPES.items()
    ]
    elements = {
        "CLUSTER-IP": f"{family.cluster_ip},tcp:80",
        "LOAD-BALANCER": f"{family.load_balancer_ip},tcp:80",
        "LOAD-BALANCER-FW": f"{family.load_balancer_ip},tcp:80",
        "LOAD-BALANCER-SOURCE-CIDR": f"{family.load_balancer_ip},tcp:80,{family.source}",
        "LOOP-BACK": f"{family.endpoints[0]},tcp:8080,{family.endpoints[0]}",
        "NODE-PORT-TCP": "30080",
        "IPVS-IPS": family.cluster_ip,
    }
    return "\n".join([*created, *(f"add {set_name(family, name)} {item}" for name, item in elements.items())]) + "\n"


def iptables_mode(family: Family) -> str:
    """Return the leftovers of mode iptables: a LoadBalancer Service with affinity, and a Service without endpoints."""
    return _fill_template("iptables-mode", family)


def ipvs_mode(family: Family) -> str:
    """Return the chains, jumps and rules of mode ipvs, without those that need the kernel module ip_vs."""
    return re.sub(r"KUBE-6-\S+", lambda found: found[0][:31], _fill_template("ipvs-mode", family))


def foreign_rules(family: Family) -> str:
    """Return rules of a CNI plugin, Docker and the kubelet, and chains with names similar to kube-proxy's."""
    return _fill_template("foreign", family)


def _fill_template(name: str, family: Family) -> str:
    local, remote = family.endpoints
    hashes = (service_hash(f"shop/frontend:httptcp{family.with_port(endpoint)}") for endpoint in family.endpoints)
    return Template((RULES / f"{name}.rules").read_text()).substitute(
        {field: getattr(family, field) for field in ("inet", "loopback", "cluster_ip", "load_balancer_ip", "source")},
        local=local,
        remote=remote,
        local_8080=family.with_port(local),
        local_443=family.with_port(local, 443),
        remote_8080=family.with_port(remote),
        set=family.set_prefix,
        **dict(zip(("local_hash", "remote_hash"), hashes, strict=True)),
    )


NFTABLES_TABLES = """\
table {family} kube-proxy {{
    comment "rules for kube-proxy"
    map service-ips {{
        type {kind} . inet_proto . inet_service : verdict
        elements = {{ {cluster} . tcp . 80 : goto service-ULMVA6XW-shop/frontend/tcp/http }}
    }}
    chain services {{
        {family} daddr . meta l4proto . th dport vmap @service-ips
    }}
    chain nat-prerouting {{
        type nat hook prerouting priority -100
        jump services
    }}
    chain service-ULMVA6XW-shop/frontend/tcp/http {{
        meta l4proto tcp dnat to {endpoint}
    }}
}}
"""
FOREIGN_TABLES = """\
table inet kube-proxy {
    set s {
        type ipv4_addr
    }
}
table ip kube-proxy-mine {
    chain c {
    }
}
"""


def nftables_mode(family: Family) -> str:
    """Return a small form of the table of mode nftables."""
    kind, name = ("ipv4_addr", "ip") if family is IPV4 else ("ipv6_addr", "ip6")
    endpoint = family.with_port(family.endpoints[0])
    return NFTABLES_TABLES.format(family=name, kind=kind, cluster=family.cluster_ip, endpoint=endpoint)
