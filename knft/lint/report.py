"""The report as a value: the JSON output of ``knft lint``; ``report.schema.json`` is generated from it."""

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from knft.lint.checks import ORDER, Check, Severity


class Finding(Struct, frozen=True):
    """Something in manifests that cannot work (a problem) or will surprise (a warning).

    ``id`` identifies the check, and is an anchor of docs/operations/lint.md. ``object`` is a Service
    (``namespace/name``), or another object with its kind. ``ports`` are those of the Service that it is about, such as
    ``http/tcp``, all if empty. ``families`` are empty if it does not depend on the family, ``nodes`` if it does not
    depend on the node.
    """

    id: str
    severity: Severity
    object: str
    ports: tuple[str, ...]
    families: tuple[str, ...]
    nodes: tuple[str, ...]
    what: str
    traffic: str
    advice: str


class TrafficChange(Struct, frozen=True):
    """Packets of a Service port ("" if of no Service) that are treated differently after a change of manifests.

    ``before`` and ``after`` are outcomes; they are empty if they vary, and ``description`` then names an example.
    ``is_loss`` tells whether packets that were served are no longer served. ``example`` has the flags of ``knft trace``
    for one of the packets, on the first of ``nodes`` and of the first of ``families``, "" if there is none.
    """

    service: str
    families: tuple[str, ...]
    nodes: tuple[str, ...]
    description: str
    before: str
    after: str
    is_loss: bool
    example: str


class ManifestChange(Struct, frozen=True):
    """What a change of manifests does: ``nodes`` are those whose packets were compared."""

    nodes: tuple[str, ...]
    traffic: tuple[TrafficChange, ...]
    new_findings: tuple[Finding, ...]
    gone_findings: tuple[Finding, ...]


class LintReport(Struct, frozen=True):
    """The findings about manifests, the most serious first.

    ``services`` counts the Services, and ``nodes`` are those for which checks that depend on the node were made.
    ``notes`` tell which checks were left out, which settings of nodes are probably wrong, and how many Services a
    change deletes. ``change`` is None without ``--against``. ``version`` is the version of this format.
    """

    problems: int
    warnings: int
    services: int
    nodes: tuple[str, ...]
    notes: tuple[str, ...]
    findings: tuple[Finding, ...]
    change: ManifestChange | None = None
    version: int = 1


class Hit(Struct, frozen=True):
    """What one check found in one object, for one Service port, one family, and one set of nodes."""

    check: Check
    object: str
    port: str
    family: str
    nodes: tuple[str, ...]
    severity: Severity
    values: tuple[tuple[str, str], ...]


def hit(
    check: Check,
    what: object,
    *,
    port: str = "",
    family: str = "",
    nodes: Iterable[str] = (),
    severity: Severity | None = None,
    **values: object,
) -> Hit:
    """Return what a check found in the object ``what``; ``values`` are those of its texts."""
    texts = tuple((name, str(value)) for name, value in values.items())
    return Hit(check, str(what), port, family, tuple(nodes), severity or check.value.severity, texts)


def findings_of(hits: Iterable[Hit]) -> tuple[Finding, ...]:
    """Return hits as findings in a deterministic order; those that differ only in port and family become one."""
    ports: dict[Hit, set[str]] = {}
    for each in hits:
        ports.setdefault(replace(each, port=""), set()).add(each.port)
    families: dict[tuple[Hit, frozenset[str]], set[str]] = {}
    for each, of_ports in ports.items():
        families.setdefault((replace(each, family=""), frozenset(of_ports - {""})), set()).add(each.family)
    findings = (
        _finding(each, tuple(sorted(of_ports)), tuple(sorted(of_families - {""})))
        for (each, of_ports), of_families in families.items()
    )
    return tuple(sorted(findings, key=_position))


def _finding(found: Hit, ports: tuple[str, ...], families: tuple[str, ...]) -> Finding:
    texts, values = found.check.value, {"family": "/".join(families), **dict(found.values)}
    return Finding(
        id=found.check.identifier,
        severity=found.severity,
        object=found.object,
        ports=ports,
        families=families,
        nodes=found.nodes,
        what=texts.what.format(**values),
        traffic=texts.traffic.format(**values),
        advice=texts.advice.format(**values),
    )


def _position(finding: Finding) -> tuple[object, ...]:
    is_warning = finding.severity == "warning"
    details = (finding.ports, finding.families, finding.nodes, finding.what, finding.traffic)
    return (is_warning, ORDER[finding.id], finding.object, *details)
