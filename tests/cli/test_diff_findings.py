"""What ``knft diff`` reports about changed rules in captures of kube-proxy: the cause, and the rules that decide."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import knft.present
from knft.cli.commands import cli
from knft.cli.kube_proxy_options import kube_proxy_options
from knft.comparison.kube_proxy_inputs import ObjectSnapshots, sync_inputs
from knft.families import Family
from knft.proxy_mode import Mode
from knft.source.paths import read_paths
from knft_compat import iptables, ipvs, nftables
from knft_compat.captures import SimulatedOutput, captures_after_first_sync
from tests.support.schema_validator import schema_validator
from tests.support.traced_cluster import FLAGS, write_manifests

SCHEMA = json.loads((Path(knft.present.__file__).parent / "report.schema.json").read_text())
_MARK = "-A KUBE-MARK-MASQ -j MARK --or-mark 0x00004000"
_DROP = "-A PREROUTING -d 10.96.0.10/32 -j DROP"
_OTHER_DROP = "-A PREROUTING -d 198.18.0.1/32 -j DROP"


class CapturedNode:
    """The cluster of ``tests.support.traced_cluster``, and the captures of a node with kube-proxy."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.manifests = write_manifests(folder)

    def captures(self, mode: Mode) -> SimulatedOutput:
        options = cli.commands["diff"].make_context("diff", ["-f", str(self.manifests), *FLAGS]).params
        parsed = kube_proxy_options(mode, options)
        changes = tuple(read_paths([str(self.manifests)], None).changes)
        (found,) = (
            item for family, item in sync_inputs(ObjectSnapshots(changes, None), parsed) if family is Family.IPV4
        )
        settings = parsed.settings
        assert not isinstance(settings, nftables.Settings)
        output = (
            iptables.sync(found, settings) if isinstance(settings, iptables.Settings) else ipvs.sync(found, settings)
        )
        return captures_after_first_sync(output)

    def diff(self, captures: SimulatedOutput, output: str = "json") -> tuple[int, str]:
        """Compare captures; return the exit status and the output, which is in the files' folder."""
        arguments = ["diff", "-f", str(self.manifests), *FLAGS, "-o", output]
        files = {"iptables-save": captures.rules, "ipset-save": captures.sets, "ipvsadm-save": captures.servers}
        for name, text in files.items():
            if text:
                (self.folder / name).write_text(text)
                arguments += [f"--{name}", str(self.folder / name)]
        done = CliRunner().invoke(cli, arguments, catch_exceptions=False)
        return done.exit_code, done.stdout


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> CapturedNode:
    return CapturedNode(tmp_path_factory.mktemp("captures"))


def _reject_with(reply: str) -> Callable[[str], str]:
    return lambda rules: rules.replace("-j REJECT\n", f"-j REJECT --reject-with {reply}\n")


def _differences(report: dict[str, Any]) -> list[dict[str, Any]]:
    return [group for family in report["families"] for group in family["differences"]]


def _line(text: str, rule: str) -> int:
    return text.splitlines().index(rule) + 1


@pytest.mark.parametrize("reply", ["icmp-admin-prohibited", "tcp-reset", "icmp-host-unreachable"])
def test_other_reply_of_reject_is_a_difference(node: CapturedNode, reply: str) -> None:
    found = node.captures(Mode.IPTABLES)
    changed = found._replace(rules=_reject_with(reply)(found.rules))
    status, text = node.diff(changed)
    groups = _differences(json.loads(text))
    schema_validator(SCHEMA).validate(json.loads(text))
    assert status == 1
    assert {group["cause"] for group in groups} == {"reply"}
    assert {group["service"] for group in groups} == {"shop/closed:http"}
    assert {group["left"] for group in groups} == {f"is rejected with {reply.removeprefix('icmp-')}"}
    assert {group["right"] for group in groups} == {"is rejected"}


@pytest.mark.parametrize("reply", ["icmp-port-unreachable", "port-unreach"])
def test_default_reply_is_equal(node: CapturedNode, reply: str) -> None:
    found = node.captures(Mode.IPTABLES)
    assert node.diff(found._replace(rules=_reject_with(reply)(found.rules)))[0] == 0


@pytest.mark.parametrize(
    "mark", ["--set-xmark 0x4000/0x4000", "--set-mark 0x4000/0x4000", "--or-mark 0x4000"], ids=lambda text: text[2:]
)
def test_mark_that_keeps_other_bits_is_equal(node: CapturedNode, mark: str) -> None:
    found = node.captures(Mode.IPTABLES)
    assert node.diff(found._replace(rules=found.rules.replace("--or-mark 0x00004000", mark)))[0] == 0


def test_mark_that_overwrites_other_bits_is_a_difference(node: CapturedNode) -> None:
    """The deciding rule is the one that sets the mark; knft's rules keep the other bits."""
    found = node.captures(Mode.IPTABLES)
    rule = "-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0xffffffff"
    changed = found._replace(rules=found.rules.replace(_MARK, rule))
    status, text = node.diff(changed)
    groups = _differences(json.loads(text))
    assert status == 1
    assert {group["cause"] for group in groups} == {"mark"}
    assert all("mark bits 0xffffbfff overwritten" in group["left"] for group in groups)
    assert not any("mark bits" in group["right"] for group in groups)
    (decision,) = {tuple(example["left_decision"].items()) for group in groups for example in group["examples"]}
    file = f"--iptables-save {node.folder / 'iptables-save'}"
    line = _line(changed.rules, rule)
    assert dict(decision) == {"file": file, "chain": "nat KUBE-MARK-MASQ", "line": line, "text": rule}


@pytest.mark.parametrize(("scheduler", "is_equal"), [("wrr", True), ("lc", False), ("sh", False)])
def test_scheduler_with_other_shares_is_a_difference(node: CapturedNode, scheduler: str, *, is_equal: bool) -> None:
    """The deciding rule is the virtual server."""
    found = node.captures(Mode.IPVS)
    status, text = node.diff(found._replace(servers=found.servers.replace(" -s rr", f" -s {scheduler}")))
    groups = _differences(json.loads(text))
    assert status == (0 if is_equal else 1)
    assert bool(groups) is not is_equal
    for group in (group for group in groups if group["service"] == "shop/open:http"):
        assert group["cause"] == "scheduler"
        assert f"chosen by scheduler {scheduler}" in group["left"]
        for example in group["examples"]:
            decision = example["left_decision"]
            assert decision["file"] == f"--ipvsadm-save {node.folder / 'ipvsadm-save'}"
            assert found.servers.splitlines()[decision["line"] - 1].startswith("-A ")


def test_foreign_rule_that_blocks_a_service_on_both_sides_is_a_warning(node: CapturedNode) -> None:
    """A rule that blocks an address of no Service is none."""
    found = node.captures(Mode.IPTABLES)
    raw = f"*raw\n:PREROUTING ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n{_DROP}\n{_OTHER_DROP}\nCOMMIT\n"
    status, text = node.diff(found._replace(rules=raw + found.rules))
    report = json.loads(text)
    (warning,) = (remark for remark in report["remarks"] if "another program" in remark)
    assert status == 0
    assert warning == (
        "a rule of another program drops packets to shop/open on both sides: "
        f"--iptables-save {node.folder / 'iptables-save'}, line 4, chain raw PREROUTING: {_DROP}"
    )


def test_side_of_captured_rules_is_called_captured(node: CapturedNode) -> None:
    found = node.captures(Mode.IPTABLES)
    changed = found._replace(rules=_reject_with("tcp-reset")(found.rules))
    report = json.loads(node.diff(changed)[1])
    assert [report[side]["label"] for side in ("left", "right")] == ["kube-proxy (captured)", "knft"]
    text, page = node.diff(changed, "table")[1], node.diff(changed, "html")[1]
    assert "\n    kube-proxy (captured)  is rejected with tcp-reset\n" in text
    assert "</span> kube-proxy (captured): clients see</th>" in page


def test_text_and_page_name_the_deciding_rules(node: CapturedNode) -> None:
    """The rules of kube-proxy have a file and a line, those of knft are rendered."""
    found = node.captures(Mode.IPTABLES)
    changed = found._replace(rules=_reject_with("tcp-reset")(found.rules))
    rule = next(line for line in changed.rules.splitlines() if "tcp-reset" in line and "10.96.0.13" in line)
    left = (
        f"--iptables-save {node.folder / 'iptables-save'}, line {_line(changed.rules, rule)}, "
        f"chain filter KUBE-SERVICES: {rule}"
    )
    text, page = node.diff(changed, "table")[1], node.diff(changed, "html")[1]
    assert left in text
    assert "knft, chain ip knft reject-chain: reject" in text
    assert f"decided by <code>{left.replace(chr(34), '&#34;')}</code>" in page
