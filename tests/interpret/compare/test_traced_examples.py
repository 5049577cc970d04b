"""``knft trace`` accepts the packets that ``knft diff`` prints as examples, and computes the same outcomes."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import yaml
from click.testing import CliRunner

from knft.cli.commands import cli
from knft.cli.kube_proxy_options import kube_proxy_options
from knft.cli.trace import RuleSource, trace_packet
from knft.cli.trace_packet import parse_query
from knft.comparison.compare import compare
from knft.comparison.kube_proxy_inputs import ObjectSnapshots, sync_inputs
from knft.comparison.sides import Sides
from knft.families import Family
from knft.interpret.compare.report import Example, ObservedOutcome
from knft.interpret.trace import TracedOutcome
from knft.proxy_mode import Mode
from knft.source.paths import read_paths
from knft_compat import iptables
from knft_compat.captures import captures_after_first_sync
from tests.interpret.compare.rendered_sides import render_sides
from tests.support.traced_cluster import FLAGS, OBJECTS, trace, write_manifests

Outcomes = dict[tuple[str, str, str, int | None], Fraction]


def disagreements(sides: Sides) -> Iterator[str]:
    """Yield a line for each side of an example whose trace has another outcome than the example."""
    report = compare(sides)
    for group in (group for family in report.families for group in family.groups):
        for example in group.examples:
            for rules, outcomes in ((sides.left, example.left), (sides.right, example.right)):
                traced = _traced(example, RuleSource("rules", rules, {}, sides.node_addresses))
                if traced != [_outcomes(outcomes)]:
                    expected = _outcomes(outcomes)
                    yield f"{group.reason}: {example.trace_command}: expected {expected}, traced {traced}"


def _traced(example: Example, source: RuleSource) -> list[Outcomes]:
    options: dict[str, Any] = cli.commands["trace"].make_context("trace", list(example.trace)).params
    return [_outcomes(case.ends) for case in trace_packet(parse_query(options), source).ways]


def _outcomes(ends: Iterable[TracedOutcome | ObservedOutcome]) -> Outcomes:
    found: Outcomes = {}
    for end in ends:
        key = end.fate, end.endpoint, end.source, end.seconds
        found[key] = found.get(key, Fraction()) + Fraction(end.share)
    return found


def test_examples_of_rendered_rules_have_the_outcomes_that_trace_computes() -> None:
    """The cluster has packets of every origin, protocol and state, and clients with affinity entries."""
    for mode in (Mode.IPTABLES, Mode.IPVS):
        assert list(disagreements(render_sides(mode, OBJECTS, FLAGS))) == []


def _capture(manifests: Path) -> str:
    """Return what iptables-save prints on a node with kube-proxy in mode iptables."""
    options = cli.commands["diff"].make_context("diff", ["-f", str(manifests), *FLAGS]).params
    kube_proxy = kube_proxy_options(Mode.IPTABLES, options)
    changes = tuple(read_paths([str(manifests)], None).changes)
    found = dict(sync_inputs(ObjectSnapshots(changes, None), kube_proxy))[Family.IPV4]
    assert isinstance(kube_proxy.settings, iptables.Settings)
    return captures_after_first_sync(iptables.sync(found, kube_proxy.settings)).rules


def test_each_printed_example_is_accepted_and_has_the_printed_outcomes(tmp_path: Path) -> None:
    """A capture with other rules has unexpected differences, of which the text prints examples."""
    manifests, saved = write_manifests(tmp_path), tmp_path / "saved"
    rules = _capture(manifests)
    for old, new in (("-j REJECT", "-j DROP"), (":8080\n", ":8081\n"), ("--or-mark 0x00004000", "--or-mark 0x0")):
        assert old in rules
        rules = rules.replace(old, new)
    saved.write_text(rules)
    flags = (*FLAGS, "-f", str(manifests))
    text = CliRunner().invoke(cli, ["diff", *flags, "--iptables-save", str(saved)], catch_exceptions=False).stdout

    blocks = re.findall(r"^  \S.*\n(?:    .*\n)*?    example +(.*)\n", text, re.MULTILINE)

    assert len(blocks) > 5
    report = json.loads(CliRunner().invoke(cli, ["diff", *flags, "--iptables-save", str(saved), "-o", "json"]).stdout)
    examples = {
        shlex.join(group["examples"][0]["trace"]): group["examples"][0]
        for family in report["families"]
        for group in family["differences"]
    }
    capture = ("--iptables-save", str(saved), "--local-address", "192.0.2.11")
    for block in blocks:
        for side, given in (("left", capture), ("right", flags)):
            (case,) = trace(*given, *shlex.split(block))["ways"]
            assert _json_outcomes(case["ends"]) == _json_outcomes(examples[block][side]), (side, block)


def _json_outcomes(ends: list[dict[str, Any]]) -> Outcomes:
    found: Outcomes = {}
    for end in ends:
        key = end["fate"], end["endpoint"], end["source"], end["seconds"]
        found[key] = found.get(key, Fraction()) + Fraction(end["share"])
    return found


_PROGRAM = """
import json
import re
import sys
from click.testing import CliRunner
from knft.cli.commands import cli
for command in json.loads(sys.argv[1]):
    done = CliRunner().invoke(cli, command, catch_exceptions=False)
    assert done.stdout, (command, done.output)
    text = done.stdout
    if command[0] == "diff":  # Its report has the time.
        text = "\\n".join(line for line in text.splitlines() if not re.search("seconds|date|created|UTC", line))
    print(text)
"""


def _commands(folder: Path) -> list[Sequence[str]]:
    """Return commands whose output names several endpoints, Services and nodes, in text and JSON."""
    manifests, saved, earlier = write_manifests(folder), folder / "saved", folder / "earlier.yaml"
    rules = _capture(manifests)
    foreign = "".join(f"-A FORWARD -i {name} -p tcp --dport 8080 -j DROP\n" for name in ("eth7", "br0", "veth+"))
    saved.write_text(rules.replace("-A FORWARD", f"{foreign}-A FORWARD", 1))
    earlier.write_text(yaml.safe_dump_all(each for each in OBJECTS if each["kind"] != "EndpointSlice"))
    objects, capture, every_node = ("-f", str(manifests)), ("--iptables-save", str(saved)), FLAGS[2:]
    packet = ("trace", "--from", "192.0.2.99", "--to")
    commands: list[Sequence[str]] = [
        ("lint", *objects, *every_node),
        ("lint", *objects, "--against", str(earlier), *every_node),
        (*packet, "10.96.0.15:80/tcp", *objects, *FLAGS),
        (*packet, "192.0.2.11:30010/tcp", *capture, "--local-address", "192.0.2.11"),
        (*packet, "192.0.2.11:30010/tcp", *capture),
    ]
    commands = [[*each, *json_flags] for each in commands for json_flags in ((), ("-o", "json"))]
    return commands + [["diff", *objects, *FLAGS, *capture, "-o", output] for output in ("table", "json", "html")]


def test_output_is_equal_in_processes_with_other_hashes(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _PROGRAM, json.dumps(_commands(tmp_path))]
    found = {
        subprocess.run(
            command, env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True, check=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(found) == 1
    assert "eth7" in found.pop()
