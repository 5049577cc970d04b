"""The form for programs: one JSON document.

It is ASCII, keys stay in this order, and ``report.schema.json`` says all of it. ``version`` grows when something is
taken away or gets another meaning; keys may be added without.

    version    1
    verdict    equal (apart from what is meant), different, undecided, or nothing where no packets were compared
    left       name of the side, and where it was read from; right alike
    about      node, addresses, date, command, version of knft; empty where not known
    seconds    how long the comparison took
    remarks    what people should know beside
    families   for each:
      family       IPv4 or IPv6
      counts       classes of packets: equal, by_intent, different, undecided
      differences  groups: cause (verdict, endpoints, masquerade, affinity, shares), service ("" is nobody's), left and
                   right as sentences of what a client sees, classes (how many), examples
      undecided    groups alike, with a sentence
      unread       the rules that are not interpreted: side (left or right), chain, line (0: none), text
      by_intent    groups: reason, service, sentence, classes, examples

An example has sender, destination and client in words; for each side what can be seen (share of the clients as a
fraction, fate, endpoint, source, seconds of affinity or null), and the rules that are passed, in their order.
"""

from json import dumps
from typing import Any

from msgspec import to_builtins

from knft.interpret.compare.report import FamilyReport, Group, Report
from knft.present.overview import kind, total

VERSION = 1


def json(report: Report) -> str:
    """Return a report as JSON text, with a newline at its end."""
    about = to_builtins(report.about)
    document = {
        "version": VERSION,
        "verdict": kind(total(report)),
        "left": {"name": report.left, "from": about.pop("left")},
        "right": {"name": report.right, "from": about.pop("right")},
        "about": about,
        "seconds": report.seconds,
        "remarks": report.remarks,
        "families": [_family(item) for item in report.families],
    }
    return dumps(document, indent=2) + "\n"


def _family(report: FamilyReport) -> dict[str, Any]:
    meant = [group for group in report.groups if group.intent is not None]
    undecided = [group for group in report.groups if group.intent is None and group.cause == "undecided"]
    rest = [group for group in report.groups if group.intent is None and group.cause != "undecided"]
    return {
        "family": report.family,
        "counts": to_builtins(report.counts),
        "differences": [
            {"cause": group.cause, "service": group.service, "left": group.left, "right": group.right, **_found(group)}
            for group in rest
        ],
        "undecided": [{"service": group.service, "sentence": group.sentence, **_found(group)} for group in undecided],
        "unread": [to_builtins(rule) for rule in report.unread],
        "by_intent": [
            {"reason": group.intent, "service": group.service, "sentence": group.sentence, **_found(group)}
            for group in meant
        ],
    }


def _found(group: Group) -> dict[str, Any]:
    return {"classes": group.classes, "examples": [to_builtins(example) for example in group.examples]}
