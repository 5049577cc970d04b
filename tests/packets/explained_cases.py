"""The questions of ``test_explanations.py`` about the Services of ``explained.yaml``, with their first lines."""

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from knft.explain.sentences import Sentence
from knft.explain.words import listed
from knft.families import FAMILY_OF_VERSION
from tests.support.families import VERSIONS, in_family
from tests.support.lab import plan

_FAMILY = "FAMILY"
_IPV4_IN_BRACKETS = re.compile(r"\[([0-9.]+)\]")


class Direct(NamedTuple):
    """A packet whose outcome a sentence states in words: client, destination, and the answering host if it has one."""

    client: str
    to: str
    outcome: str


class Case(NamedTuple):
    """A question, sentences that its explanation has (it may have more), and its first line.

    The line ends with the frontends whose connections from ``hosts`` are ``masqueraded``. ``packets`` are for sentences
    in words. ``uses`` are the reasons for endpoints by host: one, or that of each kind of traffic. The line and the
    hosts have ``$names``; FAMILY stands for the family.
    """

    what: str
    sentences: tuple[Sentence, ...]
    line: str | tuple[str, ...]
    packets: tuple[Direct, ...] = ()
    uses: Mapping[str, tuple[str, ...]] = {}
    masqueraded: tuple[str, ...] = ()
    hosts: str = "from any host"

    def first_line(self, version: plan.Version) -> str:
        """Return the first line of the question in a family."""
        if isinstance(self.line, str):
            return "; ".join((written(self.line, version), *self._masqueraded((version,))))
        *problems, conclusion = self.line
        per_family = [written(text, each) for each in VERSIONS for text in problems]
        conclusions = (written(conclusion, each) for each in VERSIONS)
        return "; ".join(dict.fromkeys((*per_family, *conclusions, *self._masqueraded(VERSIONS))))

    def _masqueraded(self, versions: tuple[plan.Version, ...]) -> Iterator[str]:
        frontends = {written(text, each) for text in self.masqueraded for each in versions}
        if frontends:
            seen = f"endpoints see the node's address instead of the client's in connections {self.hosts} to "
            yield seen + listed(sorted(frontends))


def both(*statements: str) -> tuple[str, ...]:
    """Return the first line about both families: the problems of each family come first, the last statement last."""
    return statements


def written(text: str, version: plan.Version) -> str:
    """Return a text with the addresses and the name of a family."""
    return _IPV4_IN_BRACKETS.sub(r"\1", in_family(text, version)).replace(_FAMILY, FAMILY_OF_VERSION[version].value)


S = Sentence
CASES = (
    Case(
        "served",
        (S.SERVED, S.USED, S.HAIRPIN, S.MASQUERADED),
        both("2 of 2 FAMILY endpoints of default/served:http get connections"),
        masqueraded=("[$external.20]:80/tcp", ":30020/tcp"),
    ),
    Case("sticky:http", (S.SERVED,), both("2 of 2 FAMILY endpoints of default/sticky:http get connections")),
    Case(
        "default/conditions:80",
        (S.SERVED, S.USED, S.NOT_READY, S.NOT_SERVING, S.TERMINATES),
        both("1 of 4 FAMILY endpoints of default/conditions:http get connections"),
        uses={
            "$local-1": ("used",),
            "$local-2": ("not used: terminates and no longer serves",),
            "$remote-1": ("not used: terminates, and other endpoints are ready",),
            "$remote-2": ("not used: not ready",),
        },
    ),
    Case(
        "ending",
        (S.SERVED, S.USED_TERMINATING, S.NOT_READY),
        both("1 of 2 FAMILY endpoints of default/ending:http get connections"),
        uses={
            "$local-1": ("used although it terminates: no endpoint that may be used is ready",),
            "$remote-2": ("not used: not ready",),
        },
    ),
    Case(
        "outer",
        (S.SERVED, S.OTHER_NODE),
        both("2 of 2 FAMILY endpoints of default/outer:http get connections"),
        uses={
            "$local-1": ("used",),
            "$remote-1": ("used", "not used: on another node, and externalTrafficPolicy is Local", "used"),
        },
    ),
    Case(
        "zoned",
        (S.OTHER_ZONE,),
        both("1 of 2 FAMILY endpoints of default/zoned:http get connections"),
        uses={
            "$local-1": ("used",),
            "$remote-1": ("not used: its hints are for zone zone-b, and this node is in zone-a",),
        },
    ),
    Case(
        "hinted",
        (S.HINTED_NODE,),
        both("1 of 2 FAMILY endpoints of default/hinted:http get connections"),
        uses={"$local-1": ("used",), "$remote-1": ("not used: its hints are for node node-2",)},
    ),
    Case(
        "no-slices",
        (S.NO_SLICES,),
        both(
            "no FAMILY EndpointSlice belongs to Service default/no-slices, so FAMILY connections to "
            "default/no-slices:http are rejected"
        ),
    ),
    Case(
        "other-port",
        (S.PORT_NOT_IN_SLICES,),
        both(
            "no FAMILY EndpointSlice of Service default/other-port has port 'http' (TCP), only 'web' (TCP), so "
            "FAMILY connections to default/other-port:http are rejected"
        ),
    ),
    Case(
        "no-endpoints",
        (S.NO_ENDPOINTS,),
        both(
            "the FAMILY EndpointSlices of Service default/no-endpoints have no endpoint, so FAMILY connections "
            "to default/no-endpoints:http are rejected"
        ),
    ),
    Case(
        "none-ready",
        (S.NONE_READY,),
        both(
            "no FAMILY endpoint of default/none-ready:http is ready or still serves, so FAMILY connections to "
            "it are rejected"
        ),
        uses={"$local-1": ("not used: not ready",), "$remote-1": ("not used: terminates and no longer serves",)},
    ),
    Case(
        "inner-elsewhere",
        (S.INTERNAL_NONE_LOCAL,),
        both(
            (
                "no usable FAMILY endpoint of default/inner-elsewhere:http is on this node and "
                "internalTrafficPolicy is Local, so FAMILY connections to its cluster IP are dropped"
            ),
            "0 of 1 FAMILY endpoints of default/inner-elsewhere:http get connections",
        ),
    ),
    Case(
        "outer-elsewhere",
        (S.EXTERNAL_NONE_LOCAL,),
        both(
            (
                "no usable FAMILY endpoint of default/outer-elsewhere:http is on this node and "
                "externalTrafficPolicy is Local, so FAMILY connections from outside are dropped"
            ),
            "1 of 1 FAMILY endpoints of default/outer-elsewhere:http get connections",
        ),
        uses={"$remote-1": ("used", "not used: on another node, and externalTrafficPolicy is Local", "used")},
    ),
    Case(
        "older",
        (S.ALSO_CLAIMED, S.LOST_BY_KIND, S.LOST_FRONTENDS),
        both(
            "default/older:http does not get [$external.41]:80/tcp, which default/balanced:http owns",
            "1 of 1 FAMILY endpoints of default/older:http get connections",
        ),
        masqueraded=("[$external.40]:80/tcp",),
    ),
    Case(
        "younger",
        (S.LOST_BY_AGE,),
        both(
            "default/younger:http does not get [$external.40]:80/tcp, which default/older:http owns",
            "1 of 1 FAMILY endpoints of default/younger:http get connections",
        ),
        uses={"$remote-2": ("used", "not used: these frontends belong to default/older:http")},
    ),
    Case(
        "beta",
        (S.LOST_BY_NAME,),
        both(
            "default/beta:http does not get [$external.42]:80/tcp, which default/alpha:http owns",
            "1 of 1 FAMILY endpoints of default/beta:http get connections",
        ),
        uses={"$remote-5": ("used", "not used: these frontends belong to default/alpha:http")},
    ),
    Case(
        "alpha",
        (S.ALSO_CLAIMED,),
        both("1 of 1 FAMILY endpoints of default/alpha:http get connections"),
        masqueraded=("[$external.42]:80/tcp",),
    ),
    Case("two-ports", (S.ALL_SERVED,), "all 2 Service ports of default/two-ports have endpoints that get connections"),
    Case(
        "half",
        (S.SOME_UNSERVED, S.PORT_NOT_IN_SLICES),
        (
            "1 of 2 Service ports of default/half have a problem; no IPv4 EndpointSlice of Service default/half has"
            " port 'admin' (TCP), only 'http' (TCP), so IPv4 connections to default/half:admin are rejected"
        ),
    ),
    Case(
        "names",
        (S.SERVED,),
        both("2 of 2 FAMILY endpoints of default/names:dns get connections"),
        masqueraded=(":30053/udp",),
    ),
    Case(
        "same-address",
        (S.LOST_FRONTENDS, S.NO_FRONTEND),
        both("default/same-address:http does not get [$cluster.40]:80/tcp, which default/older:http owns"),
        packets=(Direct("local-4", "[$cluster.40]:80", "remote-1"),),
    ),
    Case(
        "slice-without-ports",
        (S.SLICES_WITHOUT_PORTS,),
        both(
            "the FAMILY EndpointSlices of Service default/slice-without-ports have no ports, so FAMILY "
            "connections to default/slice-without-ports:http are rejected"
        ),
    ),
    Case(
        "headless",
        (S.HEADLESS,),
        "Service default/headless is headless, so knft has no rules for it: clients connect to pods themselves",
        packets=(Direct("local-4", "[$remote-3]:8080", "remote-3"),),
    ),
    Case(
        "elsewhere",
        (S.EXTERNAL_NAME,),
        "Service default/elsewhere is of type ExternalName, so knft has no rules for it",
        packets=(Direct("outside", "[$external.97]:80", "remote"),),
    ),
    Case(
        "unassigned",
        (S.NO_CLUSTER_IP,),
        "Service default/unassigned has no cluster IP, so knft has no rules for it",
        packets=(Direct("outside", "[$external.97]:80", "remote"),),
    ),
    Case(
        "foreign",
        (S.OTHER_PROXY,),
        (
            "Service default/foreign has label service.kubernetes.io/service-proxy-name=other, so knft has no rules"
            " for it"
        ),
        packets=(Direct("outside", "[$cluster.61]:80", "dropped"),),
    ),
    Case(
        "wide",
        (S.TOO_MANY_FRONTENDS,),
        (
            "knft does not serve Service default/wide: its 500 ports with 102 addresses have 51000 frontends, and "
            "knft serves at most 50000; split the Service"
        ),
        packets=(Direct("outside", "[$cluster.62]:80", "dropped"),),
    ),
    Case(
        "crowded",
        (S.TOO_MANY_ENDPOINTS,),
        both(
            "knft has no FAMILY endpoints for Service default/crowded, so FAMILY connections to it are "
            "rejected: its EndpointSlices have 151000 endpoints (ports times addresses), and knft serves at "
            "most 150000; split the Service"
        ),
    ),
    Case(
        "[$cluster.20]:80",
        (S.FRONTEND, S.SERVED),
        (
            "[$cluster.20]:80/tcp is the cluster IP of Service port default/served:http; 2 of 2 FAMILY endpoints of"
            " default/served:http get connections"
        ),
    ),
    Case(
        "[$node]:30020",
        (S.FRONTEND,),
        (
            "[$node]:30020/tcp is a NodePort of Service port default/served:http; 2 of 2 FAMILY endpoints of "
            "default/served:http get connections"
        ),
        masqueraded=(":30020/tcp",),
    ),
    Case(
        ":30020",
        (S.FRONTEND,),
        both(
            ":30020/tcp is a NodePort of Service port default/served:http",
            "2 of 2 FAMILY endpoints of default/served:http get connections",
        ),
        masqueraded=(":30020/tcp",),
    ),
    Case(
        ":30091",
        (S.FRONTEND_OF_FAMILY, S.ALL_SERVED),
        (
            ":30091/tcp is a NodePort of Service port default/only-ipv4:http for IPv4; :30091/tcp is a NodePort of "
            "Service port default/only-ipv6:http for IPv6; all 2 Service ports of default/only-ipv4 and "
            "default/only-ipv6 have endpoints that get connections"
        ),
        masqueraded=(":30091/tcp",),
    ),
    Case(
        "$cluster.22",
        (S.ADDRESS,),
        (
            "$cluster.22 is the cluster IP of default/conditions; 1 of 4 FAMILY endpoints of "
            "default/conditions:http get connections"
        ),
        uses={
            "$local-1": ("used",),
            "$local-2": ("not used: terminates and no longer serves",),
            "$remote-1": ("not used: terminates, and other endpoints are ready",),
            "$remote-2": ("not used: not ready",),
        },
    ),
    Case(
        "$external.20",
        (S.ADDRESS,),
        (
            "$external.20 is an external IP of default/served; 2 of 2 FAMILY endpoints of default/served:http get "
            "connections"
        ),
        masqueraded=("[$external.20]:80/tcp",),
    ),
    Case(
        "[$external.70]:80",
        (S.FRONTEND, S.SOURCE_RANGES),
        (
            "[$external.70]:80/tcp is a load balancer IP of Service port default/partner:http; 1 of 1 FAMILY endpoints"
            " of default/partner:http get connections; only clients in $outside/host can connect to "
            "[$external.70]:80/tcp, because of loadBalancerSourceRanges"
        ),
        packets=(Direct("local-4", "[$external.70]:80", "dropped"),),
        masqueraded=("[$external.70]:80/tcp",),
        hosts="from outside",
    ),
    Case(
        "$external.70",
        (S.ADDRESS, S.SOURCE_RANGES),
        (
            "$external.70 is a load balancer IP of default/partner; 1 of 1 FAMILY endpoints of default/partner:http "
            "get connections; only clients in $outside/host can connect to [$external.70]:80/tcp, because of "
            "loadBalancerSourceRanges"
        ),
        masqueraded=("[$external.70]:80/tcp",),
        hosts="from outside",
    ),
    Case(
        "$local-2",
        (S.ENDPOINT, S.NOT_SERVING),
        "$local-2 is an endpoint of default/conditions:http; not used: terminates and no longer serves",
    ),
    Case(
        "[$remote-1]:8084",
        (S.ENDPOINT, S.USED_FOR_SOME),
        (
            "[$remote-1]:8084/tcp is an endpoint of default/outer:http; used for the cluster IP and external "
            "frontends from pods and this node, not for external frontends from outside"
        ),
        uses={"$remote-1": ("used", "not used: on another node, and externalTrafficPolicy is Local", "used")},
    ),
    Case(
        "$remote-2",
        (S.ENDPOINT, S.USED_BY_SOME, S.USED_IN_PART_BY),
        (
            "$remote-2 is an endpoint of default/conditions:http, default/ending:http, default/two-ports:http and "
            "default/younger:http; used by default/two-ports:http, not by default/conditions:http and "
            "default/ending:http; used for some traffic by default/younger:http"
        ),
    ),
    Case(
        "[$remote-1]:8087",
        (S.ENDPOINT, S.NO_FRONTEND),
        (
            "[$remote-1]:8087/tcp is an endpoint of default/same-address:http; not used: these frontends belong to "
            "default/older:http"
        ),
        packets=(Direct("local-4", "[$cluster.40]:80", "remote-1"),),
    ),
    Case(
        "[$remote-3]:8089",
        (S.ENDPOINT, S.USED_BY, S.USED_TERMINATING),
        (
            "[$remote-3]:8089/tcp is an endpoint of default/first-user:http and default/second-user:http; used by "
            "default/first-user:http and default/second-user:http"
        ),
    ),
    Case(
        "[$local-3]:8089",
        (S.ENDPOINT, S.UNUSED_BY, S.NOT_READY, S.NOT_SERVING),
        (
            "[$local-3]:8089/tcp is an endpoint of default/first-user:http and default/second-user:http; not used by "
            "default/first-user:http and default/second-user:http"
        ),
    ),
    Case(
        "[$remote-3]:8082",
        (S.ENDPOINT_OF_UNSERVED, S.HEADLESS),
        (
            "[$remote-3]:8082/tcp is in an EndpointSlice of Service default/headless; Service default/headless is "
            "headless, so knft has no rules for it: clients connect to pods themselves"
        ),
    ),
    Case(
        "[$local-1]:8086",
        (S.ENDPOINT_OF_UNSERVED, S.NO_PORT_OF_SLICE),
        (
            "[$local-1]:8086/tcp is in an EndpointSlice of Service default/extra-port; Service default/extra-port "
            "has no port of this name and protocol, so knft sends it no connections"
        ),
    ),
    Case(
        "[$node]:30061",
        (S.NODE_PORT_OF_UNSERVED, S.OTHER_PROXY, S.UNSERVED_NODE_PORT),
        (
            "30061/tcp is a NodePort of Service default/foreign; Service default/foreign has label "
            "service.kubernetes.io/service-proxy-name=other, so knft has no rules for it; the node's processes get "
            "the packets"
        ),
    ),
    Case(
        ":30061",
        (S.NODE_PORT_OF_UNSERVED, S.OTHER_PROXY, S.UNSERVED_NODE_PORT),
        (
            "30061/tcp is a NodePort of Service default/foreign; Service default/foreign has label "
            "service.kubernetes.io/service-proxy-name=other, so knft has no rules for it; the node's processes get "
            "the packets"
        ),
        packets=(Direct("outside", "[$node]:30061", "reset"),),
    ),
    Case(
        "served:81",
        (S.NO_SUCH_PORT,),
        "Service default/served has no port '81', only 'http' (80/tcp)",
        packets=(Direct("outside", "[$cluster.20]:81", "rejected"),),
    ),
    Case(
        "default/serve",
        (S.NO_SERVICE, S.DID_YOU_MEAN),
        "there is no Service default/serve; did you mean default/served?",
    ),
    Case(
        "[$cluster.99]:80",
        (S.UNALLOCATED,),
        "no Service has $cluster.99; $services is a Service CIDR, so packets to it are dropped",
    ),
    Case(
        "$cluster.99",
        (S.UNALLOCATED,),
        "no Service has $cluster.99; $services is a Service CIDR, so packets to it are dropped",
        packets=(Direct("outside", "[$cluster.99]:80", "dropped"),),
    ),
    Case(
        "[$cluster.20]:81",
        (S.CLUSTER_IP_OTHER_PORT,),
        (
            "$cluster.20 is a cluster IP of default/served, which has no port 81/tcp, only 80/tcp, so connections "
            "are rejected"
        ),
    ),
    Case(
        "[$cluster.53]:53",
        (S.CLUSTER_IP_OTHER_PROTOCOL,),
        (
            "$cluster.53 is a cluster IP of default/names, which has port 53 for udp only, so connections with tcp "
            "are rejected"
        ),
    ),
    Case(
        "[$external.96]:80",
        (S.EXTERNAL_OTHER_PORT,),
        (
            "$external.96 is an external address of default/outer-81, which has no port 80/tcp, only 81/tcp: knft "
            "does not translate these packets"
        ),
    ),
    Case(
        "[$external.99]:80",
        (S.NOT_A_FRONTEND,),
        "no Service has [$external.99]:80/tcp, and it is in no Service CIDR: knft does not translate packets to it",
    ),
    Case(
        "[$external.99]:30020",
        (S.NOT_A_FRONTEND, S.NODE_PORT_OF_NODE),
        (
            "no Service has [$external.99]:30020/tcp, and it is in no Service CIDR: knft does not translate packets to "
            "it; NodePort 30020/tcp is that of default/served:http, but $external.99 is not an address of this node"
        ),
    ),
    Case(
        "[$external.98]:80",
        (S.PROXY_MODE,),
        (
            "$external.98 is a load balancer IP of Service default/proxied with ipMode Proxy, so knft does not "
            "translate packets to it"
        ),
    ),
    Case(
        "[$external.97]:80",
        (S.OF_UNSERVED, S.EXTERNAL_NAME, S.UNSERVED_KEPT),
        (
            "$external.97 is an address of Service default/elsewhere; Service default/elsewhere is of type "
            "ExternalName, so knft has no rules for it; $external.97 is in no Service CIDR, so knft does not "
            "translate packets to it"
        ),
    ),
    Case(
        "[$node]:31999",
        (S.NODE_ADDRESS,),
        "$node is an address of this node; no Service has NodePort 31999/tcp, so its processes get the packets",
    ),
    Case(
        "[$node.pods]:30020",
        (S.NODE_PORT_ELSEWHERE,),
        (
            "default/served:http has NodePort 30020/tcp, which $node.pods does not accept, so the node's processes "
            "get the packets"
        ),
    ),
    Case(
        "[$node]:30053/tcp",
        (S.NODE_PORT_OTHER_PROTOCOL,),
        "default/names has NodePort 30053 for udp only, so the node's processes get the packets with tcp",
    ),
    Case(
        ":31999",
        (S.NO_NODE_PORT,),
        "no Service has NodePort 31999/tcp, so the node's processes get the packets",
        packets=(Direct("outside", "[$node]:31999", "reset"),),
    ),
    Case(
        ":30053",
        (S.NODE_PORT_OTHER_PROTOCOL,),
        "default/names has NodePort 30053 for udp only, so the node's processes get the packets with tcp",
        packets=(Direct("outside", "[$node]:30053", "reset"),),
    ),
)

_NOT_A_FRONTEND = (
    "knft's rules have no frontend {}, and it is in no Service CIDR: knft does not translate packets to it"
)
_NO_SERVICE = "the kernel's rules have no frontend of Service default/{}"
_NODE_ADDRESS = (
    "$node is an address of this node; knft's rules have no NodePort {}/tcp, so its processes get the packets"
)
_NO_NODE_PORT = "knft's rules have no NodePort {}/tcp, so the node's processes get the packets"
_UNALLOCATED = "knft's rules have no frontend at $cluster.99; $services is a Service CIDR, so packets to it are dropped"
FIRST_LINES_OF_RULES = {
    **{name: _NO_SERVICE.format(name) for name in ("same-address", "headless", "unassigned", "foreign")},
    "elsewhere": _NO_SERVICE.format("elsewhere") + "; did you mean default/outer-elsewhere or default/inner-elsewhere?",
    "wide": _NO_SERVICE.format("wide") + "; did you mean default/older?",
    "crowded": _NO_SERVICE.format("crowded") + "; did you mean default/proxied?",
    "default/serve": _NO_SERVICE.format("serve") + "; did you mean default/served?",
    "served:81": "knft's rules have no frontend of port '81' of Service default/served, only of 'http' (80/tcp)",
    "$local-2": _NOT_A_FRONTEND.format("$local-2"),
    **{
        what: _NOT_A_FRONTEND.format(f"{what}/tcp")
        for what in (
            *("[$remote-1]:8087", "[$local-3]:8089", "[$remote-3]:8082", "[$local-1]:8086"),
            *("[$external.99]:80", "[$external.98]:80", "[$external.97]:80"),
        )
    },
    "[$external.99]:30020": _NOT_A_FRONTEND.format("[$external.99]:30020/tcp")
    + "; NodePort 30020/tcp is that of default/served:http, but $external.99 is not an address of this node",
    "[$cluster.99]:80": _UNALLOCATED,
    "$cluster.99": _UNALLOCATED,
    "[$node]:30061": _NODE_ADDRESS.format(30061),
    "[$node]:31999": _NODE_ADDRESS.format(31999),
    ":30061": _NO_NODE_PORT.format(30061),
    ":31999": _NO_NODE_PORT.format(31999),
}
"""The first lines from the kernel's rules alone, of questions without a Service port in them, if they are different."""
