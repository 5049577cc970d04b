"""Services that cannot be meant: what is said, and that everything else is served."""

from pathlib import Path

from tests.support.bad_manifests import Row, check_problems, service, text, written_service
from tests.support.kube_objects import parametrize_rows

NAME_RULE = "is not a name: lower case letters, digits, '-' and '.', with a letter or a digit first and last"
NAMESPACE_RULE = (
    "is not the name of a namespace: lower case letters, digits and '-', with a letter or a digit first and last"
)
BOOLEANS = "put it in quotes (in YAML, yes, no, on and off are booleans)"
LATER = "the Service is not served (an API server would assign one)"


def _named(name: str) -> str:
    return text(service(name))


IPV6_ONLY = frozenset({"fd00:10:96::9"})
STILL = frozenset({"10.96.0.9"})

ADDRESSES = {
    "a cluster IP that is no address": Row(
        text(service("bad", clusterIP="10.96.0.300")),
        ("Service bad: spec.clusterIP: '10.96.0.300' is not an IP address; skipped",),
    ),
    "a cluster IP with a length": Row(
        text(service("bad", clusterIP="10.96.0.9/32")),
        ("Service bad: spec.clusterIP: '10.96.0.9/32' is not an IP address; skipped",),
    ),
    "a cluster IP that is a megabyte of digits": Row(
        text(service("bad", clusterIP="1" * 1_000_000)),
        (f"Service bad: spec.clusterIP: '{'1' * 60}'... (1000000 characters) is not an IP address; skipped",),
    ),
    "a cluster IP that is a number to YAML": Row(
        written_service("{name: bad}", "{clusterIP: 10.96}"),
        ("Service bad: spec.clusterIP: 10.96 is a number, expected text; put it in quotes; skipped",),
    ),
    "a cluster IP in small letters": Row(
        text(service("bad", clusterIP="none")),
        ("Service bad: spec.clusterIP: 'none' is not an IP address; skipped",),
    ),
    "a cluster IP of the wrong family": Row(
        text(service("bad", ipFamilies=["IPv6"])),
        ("Service bad: spec.clusterIP: '10.96.0.9' is not an IPv6 address; skipped",),
    ),
    "a second cluster IP of the wrong family": Row(
        text(service("bad", clusterIPs=["10.96.0.9", "10.96.0.8"], ipFamilies=["IPv4", "IPv6"])),
        ("Service bad: spec.clusterIPs[1]: '10.96.0.8' is not an IPv6 address; skipped",),
    ),
    "families in the other order": Row(
        text(service("bad", clusterIPs=["10.96.0.9", "fd00:10:96::9"], ipFamilies=["IPv6", "IPv4"])),
        (
            "Service bad: spec.clusterIPs[0]: '10.96.0.9' is not an IPv6 address; skipped",
            "Service bad: spec.clusterIPs[1]: 'fd00:10:96::9' is not an IPv4 address; skipped",
        ),
    ),
    "a family listed twice": Row(
        text(service("bad", clusterIPs=["10.96.0.9", "10.96.0.8"], ipFamilies=["IPv4", "IPv4"])),
        ("Service bad: spec.ipFamilies: IPv4 is listed twice; skipped",),
    ),
    "an unknown family": Row(
        text(service("bad", ipFamilies=["IPv5"])),
        ("Service bad: spec.ipFamilies[0]: 'IPv5' is not IPv4 or IPv6; skipped",),
    ),
    "cluster IPs that disagree": Row(
        text(service("bad", clusterIPs=["10.96.0.8"])),
        ("Service bad: spec.clusterIPs[0]: it is '10.96.0.8', but spec.clusterIP is '10.96.0.9'; skipped",),
    ),
    "clusterIPs without clusterIP": Row(
        text(service("bad", clusterIP=None, clusterIPs=["10.96.0.9"])),
        ("Service bad: spec.clusterIP: it is missing, but spec.clusterIPs has '10.96.0.9'; skipped",),
    ),
    "no cluster IP yet": Row(
        text(service("bad", clusterIP=None)), (f"Service bad: spec.clusterIP: it is missing; {LATER}",)
    ),
    "cluster IPs of two families without ipFamilies": Row(
        text(service("bad", clusterIPs=["10.96.0.9", "fd00:10:96::9"])),
        ("Service bad: spec.ipFamilies: it is missing, so only spec.clusterIP, 10.96.0.9, is served",),
        STILL,
    ),
    "an IPv6 zone": Row(
        text(service("bad", clusterIP="fe80::1%eth0")),
        ("Service bad: spec.clusterIP: 'fe80::1%eth0' is not an IP address: it has a zone; skipped",),
    ),
    "an IPv4 address in IPv6's form is an IPv4 address": Row(
        text(service("bad", clusterIP="::ffff:10.96.0.9")), (), STILL
    ),
    "an IPv4 address in IPv6's form is no IPv6 address": Row(
        text(service("bad", clusterIP="::ffff:10.96.0.9", ipFamilies=["IPv6"])),
        ("Service bad: spec.clusterIP: '::ffff:10.96.0.9' is not an IPv6 address; skipped",),
    ),
    "an IPv6 address without letters is no number in base 60": Row(
        written_service("{name: bad}", "{clusterIP: 2001:10:0:0:0:0:0:1, ports: [{port: 80}]}"),
        (),
        frozenset({"2001:10::1"}),
    ),
    "leading zeros are as kube-proxy reads them": Row(text(service("bad", clusterIP="10.096.000.009")), (), STILL),
    "the unspecified address": Row(
        text(service("bad", clusterIP="0.0.0.0")),  # noqa: S104 - nothing is bound
        ("Service bad: spec.clusterIP: '0.0.0.0' is the unspecified address; skipped",),
    ),
    "the unspecified address of IPv6": Row(
        text(service("bad", clusterIP="::")),
        ("Service bad: spec.clusterIP: '::' is the unspecified address; skipped",),
    ),
    "a loopback address would take the node's own": Row(
        text(service("bad", clusterIP="127.0.0.1")),
        ("Service bad: spec.clusterIP: '127.0.0.1' is a loopback address; skipped",),
    ),
    "a multicast address": Row(
        text(service("bad", clusterIP="ff02::1")),
        ("Service bad: spec.clusterIP: 'ff02::1' is a multicast address; skipped",),
    ),
    "the broadcast address": Row(
        text(service("bad", clusterIP="255.255.255.255")),
        ("Service bad: spec.clusterIP: '255.255.255.255' is the broadcast address; skipped",),
    ),
    "external IPs that are none": Row(
        text(service("bad", externalIPs=["203.0.113.1", "web.example", "127.0.0.1", "169.254.0.1"])),
        (
            "Service bad: spec.externalIPs[1]: 'web.example' is not an IP address; ignored",
            "Service bad: spec.externalIPs[2]: '127.0.0.1' is a loopback address; ignored",
            "Service bad: spec.externalIPs[3]: '169.254.0.1' is a link-local address; ignored",
        ),
        STILL,
    ),
    "a load balancer's address that is none": Row(
        text(service("bad") | {"status": {"loadBalancer": {"ingress": [{"ip": "web"}, {"hostname": "web"}]}}}),
        ("Service bad: status.loadBalancer.ingress[0].ip: 'web' is not an IP address; ignored",),
        STILL,
    ),
    "a source range among others that is none": Row(
        text(service("bad", loadBalancerSourceRanges=[" 10.0.0.0/8", "10.0.0.1"])),
        ("Service bad: spec.loadBalancerSourceRanges[1]: '10.0.0.1' is not a CIDR; ignored",),
        STILL,
    ),
}

FIELDS = {
    "an unknown type": Row(
        text(service("bad", type="Ingress")),
        ("Service bad: spec.type: 'Ingress' is not ClusterIP, ExternalName, LoadBalancer or NodePort; skipped",),
    ),
    "an unknown policy": Row(
        text(service("bad", externalTrafficPolicy="local")),
        ("Service bad: spec.externalTrafficPolicy: 'local' is not Cluster or Local; skipped",),
    ),
    "an unknown affinity": Row(
        text(service("bad", sessionAffinity="Cookie")),
        ("Service bad: spec.sessionAffinity: 'Cookie' is not ClientIP or None; skipped",),
    ),
    "an affinity of two days": Row(
        text(service("bad", sessionAffinityConfig={"clientIP": {"timeoutSeconds": 172800}})),
        (
            (
                "Service bad: spec.sessionAffinityConfig.clientIP.timeoutSeconds: "
                "172800 is not between 1 and 86400; skipped"
            ),
        ),
    ),
    "no metadata": Row(
        "apiVersion: v1\nkind: Service\nspec: {}", ("document 2: Service: metadata: it is missing; skipped",)
    ),
    "metadata that is text": Row(
        "apiVersion: v1\nkind: Service\nmetadata: web\nspec: {}",
        ("document 2: Service: metadata: 'web' is text, expected a mapping; skipped",),
    ),
    "no name": Row(written_service("{}"), ("document 2: Service: metadata.name: it is missing; skipped",)),
    "a null for a name": Row(
        written_service("{name: }"), ("document 2: Service: metadata.name: it is missing; skipped",)
    ),
    "an empty name": Row(written_service("{name: ''}"), ("document 2: Service: metadata.name: it is empty; skipped",)),
    "no spec": Row(
        "apiVersion: v1\nkind: Service\nmetadata: {name: bad}", ("Service bad: spec: it is missing; skipped",)
    ),
    "nulls are what is left out": Row(
        written_service(
            "{name: bad, namespace: null, labels: null, annotations: null}",
            "{clusterIP: 10.96.0.9, type: null, clusterIPs: null, ports: [{port: 80, name: null, protocol: null}]}",
        ),
        (),
        STILL,
    ),
    "ports: null": Row(text(service("bad", ports=None)), (), frozenset()),
    "a name that is a number": Row(
        written_service("{name: 0123}"),
        ("Service 0123: metadata.name: 0123 is a number, expected text; put it in quotes; skipped",),
    ),
    "a name that is a boolean to YAML": Row(
        written_service("{name: on}"),
        (f"Service true: metadata.name: true is a boolean, expected text; {BOOLEANS}; skipped",),
    ),
    "a name that is a list": Row(
        written_service("{name: [web]}"),
        ("Service a list: metadata.name: it is a list, expected text; skipped",),
    ),
    "a label that is a number": Row(
        written_service("{name: bad, labels: {service.kubernetes.io/service-proxy-name: 1}}"),
        (
            (
                "Service bad: metadata.labels['service.kubernetes.io/service-proxy-name']: 1 is a number, "
                "expected text; put it in quotes; skipped"
            ),
        ),
    ),
    "a name with capitals": Row(_named("Web"), (f"Service Web: metadata.name: 'Web' {NAME_RULE}; skipped",)),
    "a name of 254 characters": Row(
        _named("a" * 254),
        (
            (
                f"Service {'a' * 60!r}... (254 characters): metadata.name: "
                "it has 254 characters, at most 253 are allowed; skipped"
            ),
        ),
    ),
    "a name with a newline": Row(
        _named("web\nevil"), (f"Service 'web\\nevil': metadata.name: 'web\\nevil' {NAME_RULE}; skipped",)
    ),
    "a name that ends in a newline": Row(
        _named("web\n"), (f"Service 'web\\n': metadata.name: 'web\\n' {NAME_RULE}; skipped",)
    ),
    "a name that would be nft syntax": Row(
        _named('"} ; flush ruleset'),
        (f"""Service '"}} ; flush ruleset': metadata.name: '"}} ; flush ruleset' {NAME_RULE}; skipped""",),
    ),
    "a namespace that would be nft syntax": Row(
        written_service("{name: bad, namespace: '$a;'}"),
        (f"Service $a;/bad: metadata.namespace: '$a;' {NAMESPACE_RULE}; skipped",),
    ),
    "a namespace with a dot": Row(
        written_service("{name: bad, namespace: a.b}"),
        (f"Service a.b/bad: metadata.namespace: 'a.b' {NAMESPACE_RULE}; skipped",),
    ),
    "an unquoted time": Row(written_service("{name: bad, creationTimestamp: 2026-01-01T00:00:00Z}"), (), STILL),
    "a time that is none": Row(written_service("{name: bad, creationTimestamp: yesterday}"), (), STILL),
    "an octal port is what kubectl reads": Row(
        written_service("{name: bad}", "{clusterIP: 10.96.0.9, ports: [{port: 010}]}"), (), STILL
    ),
}


@parametrize_rows(ADDRESSES)
def test_invalid_address_is_reported(tmp_path: Path, row: Row) -> None:
    check_problems(tmp_path, row)


@parametrize_rows(FIELDS)
def test_invalid_field_is_reported(tmp_path: Path, row: Row) -> None:
    check_problems(tmp_path, row)


def test_octal_010_is_8(tmp_path: Path) -> None:
    seen = check_problems(tmp_path, FIELDS["an octal port is what kubectl reads"])
    assert '"10.96.0.9",6,8]' in seen.elements.replace(" ", "")


def test_no_valid_source_range_allows_no_source(tmp_path: Path) -> None:
    """A Service that was to be reached by a few must not be open to everybody for a typing error."""
    bad = service("bad", type="LoadBalancer", loadBalancerSourceRanges=["10.0.0.0/33"])
    bad["status"] = {"loadBalancer": {"ingress": [{"ip": "203.0.113.7"}]}}
    said = (
        "Service bad: spec.loadBalancerSourceRanges[0]: '10.0.0.0/33' is not a CIDR; ignored",
        "Service bad: spec.loadBalancerSourceRanges: no valid range is left; load balancer addresses are ignored",
    )
    seen = check_problems(tmp_path, Row(text(bad), said, STILL))
    assert "203.0.113.7" not in seen.elements


def test_ignored_addresses_are_not_served(tmp_path: Path) -> None:
    seen = check_problems(tmp_path, ADDRESSES["external IPs that are none"])
    assert "203.0.113.1" in seen.elements
    assert "127.0.0.1" not in seen.elements
    assert "169.254.0.1" not in seen.elements


def test_number_of_reported_problems_is_limited(tmp_path: Path) -> None:
    bad = service("bad", externalIPs=[f"x{index}" for index in range(1000)])
    told = tuple(
        f"Service bad: spec.externalIPs[{index}]: 'x{index}' is not an IP address; ignored" for index in range(10)
    )
    row = Row(text(bad), (*told, "Service bad: 990 more problems"), STILL)
    check_problems(tmp_path, row)
