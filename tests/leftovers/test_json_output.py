"""``knft cleanup -o json`` says the same as the text, and matches its schema."""

import re
from pathlib import Path

import msgspec
import pytest

from knft.cli.cleanup_report import CleanupDocument, Step, format_step
from tests.support.command_schemas import validated
from tests.support.knft_command import KNFT, knft, sync_once
from tests.support.knft_run import KnftRun
from tests.support.nft_process import library_in
from tests.support.old_node import OldNode

pytestmark = pytest.mark.kernel
EXAMPLES = Path(__file__).parent.parent.parent / "examples"


def _document(output: str) -> CleanupDocument:
    return msgspec.convert(validated("cleanup", output), CleanupDocument)


def _text(document: CleanupDocument) -> str:
    return "".join(f"{line}\n" for line in (*document.warnings, *map(format_step, document.steps)))


def test_json_of_a_dry_run_has_the_steps_of_the_text(old_node: OldNode) -> None:
    old_node.add_foreign_rules()
    old_node.add_iptables_mode("nft")
    old_node.add_ipvs_mode("legacy")
    old_node.add_nftables_mode()
    before = old_node.state()
    document = _document(old_node.cleanup("all", "--dry-run", "-o", "json"))
    assert old_node.state() == before
    assert _text(document) == old_node.cleanup("all", "--dry-run")
    assert document.dry_run
    assert Step("ipsets", "would be removed", {"ipset": 34}) in document.steps


def test_json_of_a_cleanup_has_what_was_removed(old_node: OldNode) -> None:
    old_node.add_iptables_mode("nft")
    rules = re.findall(r"^\[.*?] -A (?!KUBE-)", old_node.rules()["iptables-nft"], re.MULTILINE)
    document = _document(old_node.cleanup("iptables", "-o", "json"))
    counts = {"chain": 18, "rule": len(rules)}
    assert document.steps[0] == Step("iptables-nft", "removed", counts)
    assert not document.dry_run
    assert _text(_document(old_node.cleanup("all", "-o", "json"))) == old_node.cleanup("all")


def test_json_has_the_contents_of_knfts_tables(old_node: OldNode) -> None:
    sync_once(old_node.namespace, EXAMPLES)
    planned = _document(knft(old_node.namespace, "cleanup", "--dry-run", "-o", "json").stdout)
    assert [(step.object, step.outcome) for step in planned.steps] == [
        ("table ip knft", "would be removed"),
        ("table ip6 knft", "would be removed"),
    ]
    assert all({"chain", "rule", "set", "map", "element"} <= step.contents.keys() for step in planned.steps)
    done = _document(knft(old_node.namespace, "cleanup", "-o", "json").stdout)
    assert done.steps == (Step("table ip knft", "removed"), Step("table ip6 knft", "removed"))


def test_json_of_a_dry_run_warns_of_a_running_knft(old_node: OldNode, tmp_path: Path) -> None:
    with KnftRun(old_node.namespace, tmp_path):
        document = _document(knft(old_node.namespace, "cleanup", "--dry-run", "-o", "json").stdout)
        (warning,) = document.warnings
        assert warning.endswith("; stop it before the cleanup, because it would create the tables again")
        refused = knft(old_node.namespace, "cleanup", "-o", "json", check=False)
        assert (refused.returncode, refused.stdout) == (1, "")


def test_json_of_a_failed_cleanup_has_the_error_and_the_other_steps(old_node: OldNode) -> None:
    """Another process owns the table ip knft."""
    library_in(old_node.namespace).run("table ip knft { flags owner; }; table ip6 knft")
    done = old_node.namespace.run([*KNFT, "cleanup", "-o", "json"], check=False)
    assert done.returncode == 1
    document = _document(done.stdout)
    failed, removed = document.steps
    assert (failed.object, failed.outcome) == ("table ip knft", "failed")
    assert failed.reason.startswith("cannot remove table ip knft: table ip knft is owned by another process: ")
    assert removed == Step("table ip6 knft", "removed")
    assert done.stderr.startswith(f"knft: {failed.reason}\n")


def test_json_has_the_error_of_what_cannot_be_read(old_node: OldNode, tmp_path: Path) -> None:
    """The text does not say that it is not installed."""
    program = tmp_path / "ipset"
    program.write_text("#!/bin/sh\necho 'ipset: Operation not permitted' >&2\nexit 1\n")
    program.chmod(0o755)
    command = ["env", f"PATH={tmp_path}:/usr/sbin:/usr/bin:/sbin:/bin", *KNFT, "cleanup", "--kube-proxy", "ipvs"]
    done = old_node.namespace.run([*command, "-o", "json"], check=False)
    assert done.returncode == 1
    (step,) = [step for step in _document(done.stdout).steps if step.object == "ipsets"]
    assert (step.outcome, "Operation not permitted" in step.reason) == ("failed", True)
    done = old_node.namespace.run(command, check=False)
    assert "ipsets:" not in done.stdout
    assert done.stderr.startswith(f"knft: {step.reason}\n")


def test_json_of_a_forced_cleanup_has_the_warning(old_node: OldNode, tmp_path: Path) -> None:
    """With libnftables 1.1.3, the running knft owns its tables, so their removal fails."""
    with KnftRun(old_node.namespace, tmp_path):
        done = knft(old_node.namespace, "cleanup", "--force", "-o", "json", check=False)
    document = _document(done.stdout)
    assert {step.outcome for step in document.steps} == {"failed" if done.returncode else "removed"}
    (warning,) = document.warnings
    assert warning.endswith("; it will create the tables again")
