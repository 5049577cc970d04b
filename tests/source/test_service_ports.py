"""Ports of Services that cannot be meant."""

from pathlib import Path

from tests.support.bad_manifests import Row, check_problems, service, text, written_service
from tests.support.kube_objects import parametrize_rows

PORT_NAME_RULE = "is not the name of a port: letters, digits and '-', with a letter or a digit first and last"


def _ports(*ports: object) -> str:
    return text(service("bad", ports=list(ports)))


PORTS = {
    "port 0": Row(_ports({"port": 0}), ("Service bad: spec.ports[0].port: 0 is not between 1 and 65535; skipped",)),
    "port 70000": Row(
        _ports({"port": 80, "name": "a"}, {"port": 70000, "name": "b"}),
        ("Service bad: spec.ports[1].port: 70000 is not between 1 and 65535; skipped",),
    ),
    "a port below 0": Row(
        _ports({"port": -80}), ("Service bad: spec.ports[0].port: -80 is not between 1 and 65535; skipped",)
    ),
    "NodePort 70000": Row(
        _ports({"port": 80, "nodePort": 70000}),
        ("Service bad: spec.ports[0].nodePort: 70000 is not between 0 and 65535; skipped",),
    ),
    "a port in hexadecimal digits, as the user wrote them": Row(
        written_service("{name: bad}", "{clusterIP: 10.96.0.9, ports: [{port: 0x11170}]}"),
        ("Service bad: spec.ports[0].port: 0x11170 is not between 1 and 65535; skipped",),
    ),
    "a port with more digits than a number has": Row(
        written_service("{name: bad}", "{clusterIP: 10.96.0.9, ports: [{port: %s}]}" % ("9" * 64)),
        ("Service bad: spec.ports[0].port: a very long number is not between 1 and 65535; skipped",),
    ),
    "a port of 5000 digits is text": Row(
        written_service("{name: bad}", "{clusterIP: 10.96.0.9, ports: [{port: %s}]}" % ("9" * 5000)),
        (
            (
                f"Service bad: spec.ports[0].port: '{'9' * 60}'... (5000 characters) is text, "
                "expected a whole number, without quotes; skipped"
            ),
        ),
    ),
    "a number as text": Row(
        _ports({"port": "80"}),
        (("Service bad: spec.ports[0].port: '80' is text, expected a whole number, without quotes; skipped"),),
    ),
    "a port's name for its number": Row(
        _ports({"port": "http"}),
        ("Service bad: spec.ports[0].port: 'http' is text, expected a whole number; skipped",),
    ),
    "YAML 1.2's octal number is text in YAML 1.1": Row(
        written_service("{name: bad}", "{clusterIP: 10.96.0.9, ports: [{port: 0o80}]}"),
        ("Service bad: spec.ports[0].port: '0o80' is text, expected a whole number; skipped",),
    ),
    "a number with a leading 0 that is not octal": Row(
        written_service("{name: bad}", "{clusterIP: 10.96.0.9, ports: [{port: 080}]}"),
        (("Service bad: spec.ports[0].port: 080 is not a valid octal number; remove the leading 0; skipped"),),
    ),
    "a number that is not whole": Row(
        written_service("{name: bad}", "{clusterIP: 10.96.0.9, ports: [{port: 80.50}]}"),
        ("Service bad: spec.ports[0].port: 80.50 is a number, expected a whole number; skipped",),
    ),
    "infinity": Row(
        written_service("{name: bad}", "{clusterIP: 10.96.0.9, ports: [{port: .inf}]}"),
        ("Service bad: spec.ports[0].port: .inf is a number, expected a whole number; skipped",),
    ),
    "a boolean for a number": Row(
        _ports({"port": True}),
        ("Service bad: spec.ports[0].port: true is a boolean, expected a whole number; skipped",),
    ),
    "a port without number": Row(
        _ports({"name": "http"}), ("Service bad: spec.ports[0].port: it is missing; skipped",)
    ),
    "a null among the ports": Row(
        _ports({"port": 80}, None),
        ("Service bad: spec.ports[1]: it is null, expected a mapping; skipped",),
    ),
    "one port that is no list": Row(
        text(service("bad", ports={"port": 80})),
        ("Service bad: spec.ports: it is a mapping, expected a list; skipped",),
    ),
    "a port that is a number": Row(
        _ports(80), ("Service bad: spec.ports[0]: 80 is a number, expected a mapping; skipped",)
    ),
    "an unknown protocol": Row(
        _ports({"port": 80, "protocol": "HTTP"}),
        ("Service bad: spec.ports[0].protocol: 'HTTP' is not SCTP, TCP or UDP; skipped",),
    ),
    "a protocol in small letters": Row(
        _ports({"port": 80, "protocol": "tcp"}),
        ("Service bad: spec.ports[0].protocol: 'tcp' is not SCTP, TCP or UDP; skipped",),
    ),
    "a protocol that is a number": Row(
        _ports({"port": 80, "protocol": 6}),
        ("Service bad: spec.ports[0].protocol: 6 is not SCTP, TCP or UDP; skipped",),
    ),
    "two ports of one name": Row(
        _ports({"port": 80, "name": "http"}, {"port": 81, "name": "http"}),
        ("Service bad: spec.ports[1].name: 'http' is already the name of spec.ports[0]; skipped",),
    ),
    "two ports without a name": Row(
        _ports({"port": 80}, {"port": 81}),
        (
            (
                "Service bad: spec.ports[1].name: it is missing, and spec.ports[0] has no name either; "
                "several ports of one protocol need names; skipped"
            ),
        ),
    ),
    "a port's name that is too long": Row(
        _ports({"port": 80, "name": "a" * 64}),
        ("Service bad: spec.ports[0].name: it has 64 characters, at most 63 are allowed; skipped",),
    ),
    "a port's name with a space": Row(
        _ports({"port": 80, "name": "a b"}), (f"Service bad: spec.ports[0].name: 'a b' {PORT_NAME_RULE}; skipped",)
    ),
    "a port's name that is a number": Row(
        _ports({"port": 80, "name": 80}),
        ("Service bad: spec.ports[0].name: 80 is a number, expected text; put it in quotes; skipped",),
    ),
}


@parametrize_rows(PORTS)
def test_invalid_service_port_is_reported(tmp_path: Path, row: Row) -> None:
    check_problems(tmp_path, row)
