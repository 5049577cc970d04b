"""Invalid Services: they are reported, and everything else is served."""

from pathlib import Path
from typing import Any

from tests.support.bad_manifests import ManifestCase, check_problems, service, service_text, text
from tests.support.kube_objects import parametrize_cases

NAME_RULE = "is not a name: lower case letters, digits, '-' and '.', with a letter or a digit first and last"
NAMESPACE_RULE = (
    "is not the name of a namespace: lower case letters, digits and '-', with a letter or a digit first and last"
)
BOOLEANS = "put it in quotes (in YAML, yes, no, on and off are booleans)"
NOT_SERVED = "the Service is not served (an API server would assign one)"


def _named(name: str) -> str:
    return text(service(name))


def annotated(value: str, name: str = "drain") -> dict[str, Any]:
    """Return a Service with annotation ``knft.dev/name``."""
    found = service("bad")
    return found | {"metadata": found["metadata"] | {"annotations": {f"knft.dev/{name}": value}}}


LOAD_BALANCING = "metadata.annotations['knft.dev/load-balancing']"
IPV6_ONLY = frozenset({"fd00:10:96::9"})
SERVED = frozenset({"10.96.0.9"})

ADDRESSES = {
    "cluster IP is not an address": ManifestCase(
        text(service("bad", clusterIP="10.96.0.300")),
        ("Service bad: spec.clusterIP: '10.96.0.300' is not an IP address; skipped",),
    ),
    "cluster IP with a prefix length": ManifestCase(
        text(service("bad", clusterIP="10.96.0.9/32")),
        ("Service bad: spec.clusterIP: '10.96.0.9/32' is not an IP address; skipped",),
    ),
    "cluster IP of a million digits": ManifestCase(
        text(service("bad", clusterIP="1" * 1_000_000)),
        (f"Service bad: spec.clusterIP: '{'1' * 60}'... (1000000 characters) is not an IP address; skipped",),
    ),
    "cluster IP is a number in YAML": ManifestCase(
        service_text("{name: bad}", "{clusterIP: 10.96}"),
        ("Service bad: spec.clusterIP: 10.96 is a number, expected text; put it in quotes; skipped",),
    ),
    "None in lower case": ManifestCase(
        text(service("bad", clusterIP="none")),
        ("Service bad: spec.clusterIP: 'none' is not an IP address; skipped",),
    ),
    "cluster IP of the other family": ManifestCase(
        text(service("bad", ipFamilies=["IPv6"])),
        ("Service bad: spec.clusterIP: '10.96.0.9' is not an IPv6 address; skipped",),
    ),
    "second cluster IP of the other family": ManifestCase(
        text(service("bad", clusterIPs=["10.96.0.9", "10.96.0.8"], ipFamilies=["IPv4", "IPv6"])),
        ("Service bad: spec.clusterIPs[1]: '10.96.0.8' is not an IPv6 address; skipped",),
    ),
    "ipFamilies in the other order": ManifestCase(
        text(service("bad", clusterIPs=["10.96.0.9", "fd00:10:96::9"], ipFamilies=["IPv6", "IPv4"])),
        (
            "Service bad: spec.clusterIPs[0]: '10.96.0.9' is not an IPv6 address; skipped",
            "Service bad: spec.clusterIPs[1]: 'fd00:10:96::9' is not an IPv4 address; skipped",
        ),
    ),
    "duplicate family": ManifestCase(
        text(service("bad", clusterIPs=["10.96.0.9", "10.96.0.8"], ipFamilies=["IPv4", "IPv4"])),
        ("Service bad: spec.ipFamilies: IPv4 is listed twice; skipped",),
    ),
    "unknown family": ManifestCase(
        text(service("bad", ipFamilies=["IPv5"])),
        ("Service bad: spec.ipFamilies[0]: 'IPv5' is not IPv4 or IPv6; skipped",),
    ),
    "clusterIP and clusterIPs differ": ManifestCase(
        text(service("bad", clusterIPs=["10.96.0.8"])),
        ("Service bad: spec.clusterIPs[0]: it is '10.96.0.8', but spec.clusterIP is '10.96.0.9'; skipped",),
    ),
    "clusterIPs without clusterIP": ManifestCase(
        text(service("bad", clusterIP=None, clusterIPs=["10.96.0.9"])),
        ("Service bad: spec.clusterIP: it is missing, but spec.clusterIPs has '10.96.0.9'; skipped",),
    ),
    "no cluster IP": ManifestCase(
        text(service("bad", clusterIP=None)), (f"Service bad: spec.clusterIP: it is missing; {NOT_SERVED}",)
    ),
    "two cluster IPs without ipFamilies": ManifestCase(
        text(service("bad", clusterIPs=["10.96.0.9", "fd00:10:96::9"])),
        ("Service bad: spec.ipFamilies: it is missing, so only spec.clusterIP, 10.96.0.9, is served",),
        SERVED,
    ),
    "IPv6 zone": ManifestCase(
        text(service("bad", clusterIP="fe80::1%eth0")),
        ("Service bad: spec.clusterIP: 'fe80::1%eth0' is not an IP address: it has a zone; skipped",),
    ),
    "IPv4-mapped IPv6 address counts as IPv4": ManifestCase(
        text(service("bad", clusterIP="::ffff:10.96.0.9")), (), SERVED
    ),
    "IPv4-mapped IPv6 address in family IPv6": ManifestCase(
        text(service("bad", clusterIP="::ffff:10.96.0.9", ipFamilies=["IPv6"])),
        ("Service bad: spec.clusterIP: '::ffff:10.96.0.9' is not an IPv6 address; skipped",),
    ),
    "IPv6 address without letters is not a base 60 number": ManifestCase(
        service_text("{name: bad}", "{clusterIP: 2001:10:0:0:0:0:0:1, ports: [{port: 80}]}"),
        (),
        frozenset({"2001:10::1"}),
    ),
    "leading zeros are accepted as by kube-proxy": ManifestCase(
        text(service("bad", clusterIP="10.096.000.009")), (), SERVED
    ),
    "unspecified IPv4 address": ManifestCase(
        text(service("bad", clusterIP="0.0.0.0")),  # noqa: S104 - nothing is bound
        ("Service bad: spec.clusterIP: '0.0.0.0' is the unspecified address; skipped",),
    ),
    "unspecified IPv6 address": ManifestCase(
        text(service("bad", clusterIP="::")),
        ("Service bad: spec.clusterIP: '::' is the unspecified address; skipped",),
    ),
    "loopback address": ManifestCase(
        text(service("bad", clusterIP="127.0.0.1")),
        ("Service bad: spec.clusterIP: '127.0.0.1' is a loopback address; skipped",),
    ),
    "multicast address": ManifestCase(
        text(service("bad", clusterIP="ff02::1")),
        ("Service bad: spec.clusterIP: 'ff02::1' is a multicast address; skipped",),
    ),
    "broadcast address": ManifestCase(
        text(service("bad", clusterIP="255.255.255.255")),
        ("Service bad: spec.clusterIP: '255.255.255.255' is the broadcast address; skipped",),
    ),
    "invalid external IPs": ManifestCase(
        text(service("bad", externalIPs=["203.0.113.1", "web.example", "127.0.0.1", "169.254.0.1"])),
        (
            "Service bad: spec.externalIPs[1]: 'web.example' is not an IP address; ignored",
            "Service bad: spec.externalIPs[2]: '127.0.0.1' is a loopback address; ignored",
            "Service bad: spec.externalIPs[3]: '169.254.0.1' is a link-local address; ignored",
        ),
        SERVED,
    ),
    "invalid load balancer address": ManifestCase(
        text(service("bad") | {"status": {"loadBalancer": {"ingress": [{"ip": "web"}, {"hostname": "web"}]}}}),
        ("Service bad: status.loadBalancer.ingress[0].ip: 'web' is not an IP address; ignored",),
        SERVED,
    ),
    "invalid source range after a valid one": ManifestCase(
        text(service("bad", loadBalancerSourceRanges=[" 10.0.0.0/8", "10.0.0.1"])),
        ("Service bad: spec.loadBalancerSourceRanges[1]: '10.0.0.1' is not a CIDR; ignored",),
        SERVED,
    ),
}

FIELDS = {
    "unknown type": ManifestCase(
        text(service("bad", type="Ingress")),
        ("Service bad: spec.type: 'Ingress' is not ClusterIP, ExternalName, LoadBalancer or NodePort; skipped",),
    ),
    "unknown policy": ManifestCase(
        text(service("bad", externalTrafficPolicy="local")),
        ("Service bad: spec.externalTrafficPolicy: 'local' is not Cluster or Local; skipped",),
    ),
    "unknown affinity": ManifestCase(
        text(service("bad", sessionAffinity="Cookie")),
        ("Service bad: spec.sessionAffinity: 'Cookie' is not ClientIP or None; skipped",),
    ),
    "affinity timeout of two days": ManifestCase(
        text(service("bad", sessionAffinityConfig={"clientIP": {"timeoutSeconds": 172800}})),
        (
            (
                "Service bad: spec.sessionAffinityConfig.clientIP.timeoutSeconds: "
                "172800 is not between 1 and 86400; skipped"
            ),
        ),
    ),
    "unknown value of knft's annotation": ManifestCase(
        text(annotated("rest")),
        ("Service bad: metadata.annotations['knft.dev/drain']: 'rest' is not keep or reset; keep is used",),
        SERVED,
    ),
    "empty value of knft's annotation": ManifestCase(
        text(annotated("")),
        ("Service bad: metadata.annotations['knft.dev/drain']: '' is not keep or reset; keep is used",),
        SERVED,
    ),
    "unknown load balancing": ManifestCase(
        text(annotated("hash", "load-balancing")),
        (f"Service bad: {LOAD_BALANCING}: 'hash' is not random, maglev or source-hash; random is used",),
        SERVED,
    ),
    "values of knft's annotation": ManifestCase(text(annotated("reset")), (), SERVED),
    "no metadata": ManifestCase(
        "apiVersion: v1\nkind: Service\nspec: {}", ("document 2: Service: metadata: it is missing; skipped",)
    ),
    "metadata is text": ManifestCase(
        "apiVersion: v1\nkind: Service\nmetadata: web\nspec: {}",
        ("document 2: Service: metadata: 'web' is text, expected a mapping; skipped",),
    ),
    "no name": ManifestCase(service_text("{}"), ("document 2: Service: metadata.name: it is missing; skipped",)),
    "null name": ManifestCase(
        service_text("{name: }"), ("document 2: Service: metadata.name: it is missing; skipped",)
    ),
    "empty name": ManifestCase(
        service_text("{name: ''}"), ("document 2: Service: metadata.name: it is empty; skipped",)
    ),
    "no spec": ManifestCase(
        "apiVersion: v1\nkind: Service\nmetadata: {name: bad}", ("Service bad: spec: it is missing; skipped",)
    ),
    "null fields count as missing": ManifestCase(
        service_text(
            "{name: bad, namespace: null, labels: null, annotations: null}",
            "{clusterIP: 10.96.0.9, type: null, clusterIPs: null, ports: [{port: 80, name: null, protocol: null}]}",
        ),
        (),
        SERVED,
    ),
    "ports: null": ManifestCase(text(service("bad", ports=None)), (), frozenset()),
    "name is a number": ManifestCase(
        service_text("{name: 0123}"),
        ("Service 0123: metadata.name: 0123 is a number, expected text; put it in quotes; skipped",),
    ),
    "name is a boolean in YAML": ManifestCase(
        service_text("{name: on}"),
        (f"Service true: metadata.name: true is a boolean, expected text; {BOOLEANS}; skipped",),
    ),
    "name is a list": ManifestCase(
        service_text("{name: [web]}"),
        ("Service a list: metadata.name: it is a list, expected text; skipped",),
    ),
    "label is a number": ManifestCase(
        service_text("{name: bad, labels: {service.kubernetes.io/service-proxy-name: 1}}"),
        (
            (
                "Service bad: metadata.labels['service.kubernetes.io/service-proxy-name']: 1 is a number, "
                "expected text; put it in quotes; skipped"
            ),
        ),
    ),
    "name with capitals": ManifestCase(_named("Web"), (f"Service Web: metadata.name: 'Web' {NAME_RULE}; skipped",)),
    "name of 254 characters": ManifestCase(
        _named("a" * 254),
        (
            (
                f"Service {'a' * 60!r}... (254 characters): metadata.name: "
                "it has 254 characters, at most 253 are allowed; skipped"
            ),
        ),
    ),
    "name with a newline": ManifestCase(
        _named("web\nevil"), (f"Service 'web\\nevil': metadata.name: 'web\\nevil' {NAME_RULE}; skipped",)
    ),
    "name that ends in a newline": ManifestCase(
        _named("web\n"), (f"Service 'web\\n': metadata.name: 'web\\n' {NAME_RULE}; skipped",)
    ),
    "name with nft syntax": ManifestCase(
        _named('"} ; flush ruleset'),
        (f"""Service '"}} ; flush ruleset': metadata.name: '"}} ; flush ruleset' {NAME_RULE}; skipped""",),
    ),
    "namespace with nft syntax": ManifestCase(
        service_text("{name: bad, namespace: '$a;'}"),
        (f"Service $a;/bad: metadata.namespace: '$a;' {NAMESPACE_RULE}; skipped",),
    ),
    "namespace with a dot": ManifestCase(
        service_text("{name: bad, namespace: a.b}"),
        (f"Service a.b/bad: metadata.namespace: 'a.b' {NAMESPACE_RULE}; skipped",),
    ),
    "unquoted timestamp": ManifestCase(
        service_text("{name: bad, creationTimestamp: 2026-01-01T00:00:00Z}"), (), SERVED
    ),
    "invalid timestamp": ManifestCase(service_text("{name: bad, creationTimestamp: yesterday}"), (), SERVED),
    "octal port as in kubectl": ManifestCase(
        service_text("{name: bad}", "{clusterIP: 10.96.0.9, ports: [{port: 010}]}"), (), SERVED
    ),
}


@parametrize_cases(ADDRESSES)
def test_invalid_address_is_reported(tmp_path: Path, case: ManifestCase) -> None:
    check_problems(tmp_path, case)


@parametrize_cases(FIELDS)
def test_invalid_field_is_reported(tmp_path: Path, case: ManifestCase) -> None:
    check_problems(tmp_path, case)


def test_port_010_is_octal(tmp_path: Path) -> None:
    result = check_problems(tmp_path, FIELDS["octal port as in kubectl"])
    assert '"10.96.0.9",6,8]' in result.elements.replace(" ", "")


def test_no_valid_source_range_allows_no_source(tmp_path: Path) -> None:
    """Otherwise a typing error would open the Service to all sources."""
    bad = service("bad", type="LoadBalancer", loadBalancerSourceRanges=["10.0.0.0/33"])
    bad["status"] = {"loadBalancer": {"ingress": [{"ip": "203.0.113.7"}]}}
    problems = (
        "Service bad: spec.loadBalancerSourceRanges[0]: '10.0.0.0/33' is not a CIDR; ignored",
        "Service bad: spec.loadBalancerSourceRanges: no valid range is left; load balancer addresses are ignored",
    )
    result = check_problems(tmp_path, ManifestCase(text(bad), problems, SERVED))
    assert "203.0.113.7" not in result.elements


def test_ignored_addresses_are_not_served(tmp_path: Path) -> None:
    result = check_problems(tmp_path, ADDRESSES["invalid external IPs"])
    assert "203.0.113.1" in result.elements
    assert "127.0.0.1" not in result.elements
    assert "169.254.0.1" not in result.elements


def test_number_of_reported_problems_is_limited(tmp_path: Path) -> None:
    bad = service("bad", externalIPs=[f"x{index}" for index in range(1000)])
    reported = tuple(
        f"Service bad: spec.externalIPs[{index}]: 'x{index}' is not an IP address; ignored" for index in range(10)
    )
    case = ManifestCase(text(bad), (*reported, "Service bad: 990 more problems"), SERVED)
    check_problems(tmp_path, case)
