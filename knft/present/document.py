"""The format for programs: one JSON document.

It is ASCII, its keys keep their order, and ``report.schema.json`` is its schema. ``version`` is incremented if a key is
removed or changes its meaning; new keys do not change it.

    version    1
    verdict    the result: equal (no unexpected differences), different, undecided, or nothing (no Service compared)
    left       name of the side, and a short "label"; "from" is empty: the name of a captured side contains its files
    right      name of the side, a short "label", and in "from" the manifests that knft's rules were rendered from
    about      metadata: node, addresses, date, command, version of knft; unknown values are empty
    seconds    duration of the comparison
    remarks    warnings
    families   for each IP family:
      family       IPv4 or IPv6
      counts       numbers of packet classes: equal, by_intent (expected differences), different, undecided
      differences  groups: cause (verdict, reply, endpoints, masquerade, affinity, shares, scheduler, mark), service (""
                   if the destination is no frontend), left and right (descriptions of the outcome), loses (whether the
                   left side serves packets that the right side does not serve), classes (number), examples
      undecided    groups: service, sentence (a description), classes, examples
      unread       rules that were read but not interpreted: side (left or right), chain, line (0 if unknown), text
      by_intent    expected differences: reason, service, sentence (a description), loses, classes, examples

An example has sender, destination and client as text; for each side the outcomes (share of the clients as a fraction,
fate (delivered, rejected, dropped or undecided), endpoint, source, affinity timeout in seconds or null, reply of a
rejection ("" for port unreachable), overwritten bits of the packet's mark, IPVS scheduler ("" if it chooses equally
often)); the rules that the packets hit, in order; the rule that decides (file or command, chain, line, text), or
null; and in "trace" the flags of knft trace for one of the packets.

"""

from json import dumps
from typing import Any

from msgspec import to_builtins

from knft.interpret.compare.report import DifferenceGroup, FamilyReport, Report

VERSION = 1


def json(report: Report) -> str:
    """Return a report as JSON text with a final newline."""
    metadata = to_builtins(report.metadata)
    document = {
        "version": VERSION,
        "verdict": report.result,
        "left": {"name": report.left_name, "label": report.left_label, "from": metadata.pop("left_files")},
        "right": {"name": report.right_name, "label": report.right_label, "from": metadata.pop("right_files")},
        "about": metadata,
        "seconds": report.seconds,
        "remarks": report.warnings,
        "families": [_family(item) for item in report.families],
    }
    return dumps(document, indent=2) + "\n"


def _family(report: FamilyReport) -> dict[str, Any]:
    expected = [group for group in report.groups if group.reason is not None]
    undecided = [group for group in report.groups if group.reason is None and group.cause == "undecided"]
    different = [group for group in report.groups if group.reason is None and group.cause != "undecided"]
    return {
        "family": report.family,
        "counts": to_builtins(report.counts),
        "differences": [
            {
                "cause": group.cause,
                "service": group.service,
                "left": group.left_outcome,
                "right": group.right_outcome,
                "loses": group.is_loss,
                **_classes_and_examples(group),
            }
            for group in different
        ],
        "undecided": [
            {"service": group.service, "sentence": group.description, **_classes_and_examples(group)}
            for group in undecided
        ],
        "unread": [to_builtins(rule) for rule in report.uninterpreted_rules],
        "by_intent": [
            {
                "reason": group.reason,
                "service": group.service,
                "sentence": group.description,
                "loses": group.is_loss,
                **_classes_and_examples(group),
            }
            for group in expected
        ],
    }


def _classes_and_examples(group: DifferenceGroup) -> dict[str, Any]:
    return {"classes": group.classes, "examples": [to_builtins(example) for example in group.examples]}
