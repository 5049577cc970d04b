"""Invalid ports of Services: the Service is reported and skipped."""

from pathlib import Path

from tests.support.bad_manifests import ManifestCase, check_problems, service, service_text, text
from tests.support.kube_objects import parametrize_cases

PORT_NAME_RULE = "is not the name of a port: letters, digits and '-', with a letter or a digit first and last"


def _ports(*ports: object) -> str:
    return text(service("bad", ports=list(ports)))


PORTS = {
    "port 0": ManifestCase(
        _ports({"port": 0}), ("Service bad: spec.ports[0].port: 0 is not between 1 and 65535; skipped",)
    ),
    "port 70000": ManifestCase(
        _ports({"port": 80, "name": "a"}, {"port": 70000, "name": "b"}),
        ("Service bad: spec.ports[1].port: 70000 is not between 1 and 65535; skipped",),
    ),
    "negative port": ManifestCase(
        _ports({"port": -80}), ("Service bad: spec.ports[0].port: -80 is not between 1 and 65535; skipped",)
    ),
    "NodePort 70000": ManifestCase(
        _ports({"port": 80, "nodePort": 70000}),
        ("Service bad: spec.ports[0].nodePort: 70000 is not between 0 and 65535; skipped",),
    ),
    "hexadecimal port is reported as written": ManifestCase(
        service_text("{name: bad}", "{clusterIP: 10.96.0.9, ports: [{port: 0x11170}]}"),
        ("Service bad: spec.ports[0].port: 0x11170 is not between 1 and 65535; skipped",),
    ),
    "port of 64 digits": ManifestCase(
        service_text("{name: bad}", "{clusterIP: 10.96.0.9, ports: [{port: %s}]}" % ("9" * 64)),
        ("Service bad: spec.ports[0].port: a very long number is not between 1 and 65535; skipped",),
    ),
    "port of 5000 digits is text": ManifestCase(
        service_text("{name: bad}", "{clusterIP: 10.96.0.9, ports: [{port: %s}]}" % ("9" * 5000)),
        (
            (
                f"Service bad: spec.ports[0].port: '{'9' * 60}'... (5000 characters) is text, "
                "expected a whole number, without quotes; skipped"
            ),
        ),
    ),
    "port is numeric text": ManifestCase(
        _ports({"port": "80"}),
        (("Service bad: spec.ports[0].port: '80' is text, expected a whole number, without quotes; skipped"),),
    ),
    "port is a name": ManifestCase(
        _ports({"port": "http"}),
        ("Service bad: spec.ports[0].port: 'http' is text, expected a whole number; skipped",),
    ),
    "octal number of YAML 1.2 is text": ManifestCase(
        service_text("{name: bad}", "{clusterIP: 10.96.0.9, ports: [{port: 0o80}]}"),
        ("Service bad: spec.ports[0].port: '0o80' is text, expected a whole number; skipped",),
    ),
    "leading 0, but not octal": ManifestCase(
        service_text("{name: bad}", "{clusterIP: 10.96.0.9, ports: [{port: 080}]}"),
        (("Service bad: spec.ports[0].port: 080 is not a valid octal number; remove the leading 0; skipped"),),
    ),
    "fraction": ManifestCase(
        service_text("{name: bad}", "{clusterIP: 10.96.0.9, ports: [{port: 80.50}]}"),
        ("Service bad: spec.ports[0].port: 80.50 is a number, expected a whole number; skipped",),
    ),
    "infinity": ManifestCase(
        service_text("{name: bad}", "{clusterIP: 10.96.0.9, ports: [{port: .inf}]}"),
        ("Service bad: spec.ports[0].port: .inf is a number, expected a whole number; skipped",),
    ),
    "boolean": ManifestCase(
        _ports({"port": True}),
        ("Service bad: spec.ports[0].port: true is a boolean, expected a whole number; skipped",),
    ),
    "missing port number": ManifestCase(
        _ports({"name": "http"}), ("Service bad: spec.ports[0].port: it is missing; skipped",)
    ),
    "null port": ManifestCase(
        _ports({"port": 80}, None),
        ("Service bad: spec.ports[1]: it is null, expected a mapping; skipped",),
    ),
    "ports is a mapping": ManifestCase(
        text(service("bad", ports={"port": 80})),
        ("Service bad: spec.ports: it is a mapping, expected a list; skipped",),
    ),
    "port entry is a number": ManifestCase(
        _ports(80), ("Service bad: spec.ports[0]: 80 is a number, expected a mapping; skipped",)
    ),
    "unknown protocol": ManifestCase(
        _ports({"port": 80, "protocol": "HTTP"}),
        ("Service bad: spec.ports[0].protocol: 'HTTP' is not SCTP, TCP or UDP; skipped",),
    ),
    "protocol in lower case": ManifestCase(
        _ports({"port": 80, "protocol": "tcp"}),
        ("Service bad: spec.ports[0].protocol: 'tcp' is not SCTP, TCP or UDP; skipped",),
    ),
    "protocol is a number": ManifestCase(
        _ports({"port": 80, "protocol": 6}),
        ("Service bad: spec.ports[0].protocol: 6 is not SCTP, TCP or UDP; skipped",),
    ),
    "duplicate port name": ManifestCase(
        _ports({"port": 80, "name": "http"}, {"port": 81, "name": "http"}),
        ("Service bad: spec.ports[1].name: 'http' is already the name of spec.ports[0]; skipped",),
    ),
    "two unnamed ports": ManifestCase(
        _ports({"port": 80}, {"port": 81}),
        (
            (
                "Service bad: spec.ports[1].name: it is missing, and spec.ports[0] has no name either; "
                "several ports of one protocol need names; skipped"
            ),
        ),
    ),
    "port name too long": ManifestCase(
        _ports({"port": 80, "name": "a" * 64}),
        ("Service bad: spec.ports[0].name: it has 64 characters, at most 63 are allowed; skipped",),
    ),
    "port name with a space": ManifestCase(
        _ports({"port": 80, "name": "a b"}), (f"Service bad: spec.ports[0].name: 'a b' {PORT_NAME_RULE}; skipped",)
    ),
    "port name is a number": ManifestCase(
        _ports({"port": 80, "name": 80}),
        ("Service bad: spec.ports[0].name: 80 is a number, expected text; put it in quotes; skipped",),
    ),
}


@parametrize_cases(PORTS)
def test_invalid_service_port_is_reported(tmp_path: Path, case: ManifestCase) -> None:
    check_problems(tmp_path, case)
