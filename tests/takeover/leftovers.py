"""What kube-proxy leaves behind (behaviour.md D.2 to D.6, E.3 to E.7), and what of others is beside it."""

import hashlib
import re
from base64 import b32encode
from dataclasses import dataclass
from pathlib import Path
from string import Template


@dataclass(frozen=True, slots=True)
class Family:
    """One family: the words of its programs, and addresses to fill in."""

    iptables: str
    inet: str
    loopback: str
    cluster: str
    vip: str
    endpoints: tuple[str, ...]
    source: str
    set_start: str

    def to(self, endpoint: str, port: int = 8080) -> str:
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
    """Return the 16 characters that D.2 puts behind a prefix."""
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
    """Return a set's name in a family, cut at 31 characters."""
    return (family.set_start + name)[:31]


def ipsets(family: Family) -> str:
    """Return all sets of E.3, some with elements, for ``ipset restore``."""
    hashed = f"family {family.inet} hashsize 1024 maxelem 65536"
    made = [
        f"create {set_name(family, name)} {kind} {'range 0-65535' if kind == 'bitmap:port' else hashed}"
        for name, kind in SET_TYPES.items()
    ]
    elements = {
        "CLUSTER-IP": f"{family.cluster},tcp:80",
        "LOAD-BALANCER": f"{family.vip},tcp:80",
        "LOAD-BALANCER-FW": f"{family.vip},tcp:80",
        "LOAD-BALANCER-SOURCE-CIDR": f"{family.vip},tcp:80,{family.source}",
        "LOOP-BACK": f"{family.endpoints[0]},tcp:8080,{family.endpoints[0]}",
        "NODE-PORT-TCP": "30080",
        "IPVS-IPS": family.cluster,
    }
    return "\n".join([*made, *(f"add {set_name(family, name)} {item}" for name, item in elements.items())]) + "\n"


def iptables_mode(family: Family) -> str:
    """Return what the iptables mode leaves for a LoadBalancer Service with affinity, and for one without endpoints."""
    return _filled("iptables-mode", family)


def ipvs_mode(family: Family) -> str:
    """Return the chains, jumps and rules of the IPVS mode, but for those that need the kernel's ip_vs."""
    return re.sub(r"KUBE-6-\S+", lambda found: found[0][:31], _filled("ipvs-mode", family))


def foreign(family: Family) -> str:
    """Return rules of others: a CNI's, docker's, the kubelet's, and people's with names that look like kube-proxy's."""
    return _filled("foreign", family)


def _filled(name: str, family: Family) -> str:
    local, remote = family.endpoints
    hashes = (service_hash(f"shop/frontend:httptcp{family.to(endpoint)}") for endpoint in family.endpoints)
    return Template((Path(__file__).parent / f"{name}.rules").read_text()).substitute(
        {field: getattr(family, field) for field in ("inet", "loopback", "cluster", "vip", "source")},
        local=local,
        remote=remote,
        local_8080=family.to(local),
        local_443=family.to(local, 443),
        remote_8080=family.to(remote),
        set=family.set_start,
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
    """Return the table of the nftables mode, in a small form."""
    kind, name = ("ipv4_addr", "ip") if family is IPV4 else ("ipv6_addr", "ip6")
    endpoint = family.to(family.endpoints[0])
    return NFTABLES_TABLES.format(family=name, kind=kind, cluster=family.cluster, endpoint=endpoint)
