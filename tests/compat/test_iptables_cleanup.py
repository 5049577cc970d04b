"""Tests of ``--cleanup`` in the iptables mode (docs/behaviour/iptables.md#cleanup)."""

import json
from pathlib import Path

from tests.compat.iptables_render import endpoints, render, service, table
from tests.compat.test_iptables_output import JUMPS
from tests.support.kube_objects import parametrize_cases as cases

OBJECTS = [service(), endpoints("ns1/svc1", "10.180.0.1")]
SVC, SEP, STALE_CHAIN = "KUBE-SVC-XPGD46QRK7WJZT7O", "KUBE-SEP-SXIVWICOYRO3J4NJ", "KUBE-EXT-AAAAAAAAAAAAAAAA"
NAT = ["KUBE-SERVICES", "KUBE-NODEPORTS", "KUBE-POSTROUTING", "KUBE-MARK-MASQ", "KUBE-PROXY-CANARY"]
FILTER = ["KUBE-SERVICES", "KUBE-EXTERNAL-SERVICES", "KUBE-FORWARD", "KUBE-NODEPORTS", "KUBE-PROXY-FIREWALL",
          "KUBE-PROXY-CANARY"]  # fmt: skip


def removal(*names: str) -> list[str]:
    """Return the lines that delete chains."""
    return [*(f":{chain} - [0:0]" for chain in names), *(f"-X {chain}" for chain in names)]


def removed(*flags: str) -> str:
    """Return the inputs of iptables-restore."""
    parts = ("iptables-restore-nat", "iptables-restore-filter")
    return "".join(render(OBJECTS, "--cleanup", "--part", part, *flags) for part in parts)


@cases({"ipv4": ("ipv4", "iptables"), "ipv6": ("ipv6", "ip6tables")})
def test_cleanup_keeps_kubelet_jumps(case: tuple[str, str]) -> None:
    family, program = case
    assert render(OBJECTS, "--cleanup", "--part", "jumps-removed", "--family", family).splitlines() == [
        f"{program} -w 5 -W 100000 -D {source} -t {name} {match}-j {target} 2>/dev/null || true"
        for name, source, target, match in JUMPS
        if target != "KUBE-FIREWALL"
    ]


def test_cleanup_restores_tables_one_at_a_time_after_removing_jumps() -> None:
    parts = json.loads(render(OBJECTS, "--cleanup", "-o", "json"))["parts"]
    restore = ["iptables-restore", "-w", "5", "-W", "100000", "-T"]
    assert [(part["part"], part["tool"]) for part in parts] == [
        ("jumps-removed", ["sh"]),
        ("iptables-restore-nat", [*restore, "nat", "--noflush", "--counters"]),
        ("iptables-restore-filter", [*restore, "filter", "--noflush", "--counters"]),
        ("canary-removed", ["sh"]),
    ]


def test_cleanup_removes_the_chains_of_a_sync() -> None:
    text = removed()
    assert table(text, "nat") == removal(*NAT, SEP, SVC)
    assert table(text, "filter") == removal(*FILTER)


def test_cleanup_removes_the_mangle_canary_last() -> None:
    text = render(OBJECTS, "--cleanup", "--part", "canary-removed")
    assert text == "iptables -w 5 -W 100000 -X KUBE-PROXY-CANARY -t mangle 2>/dev/null || true\n"


def test_cleanup_removes_only_existing_chains(tmp_path: Path) -> None:
    path = tmp_path / "saved.txt"
    path.write_text(
        f"*filter\n:INPUT ACCEPT [0:0]\n:KUBE-FIREWALL - [0:0]\n:KUBE-FORWARD - [0:0]\n:{STALE_CHAIN} - [0:0]\nCOMMIT\n"
        f"*nat\n:KUBE-MARK-MASQ - [0:0]\n:DOCKER - [0:0]\n:{STALE_CHAIN} - [0:0]\n:KUBE-SERVICES - [0:0]\nCOMMIT\n"
    )
    text = removed("--existing", str(path))
    assert table(text, "nat") == removal("KUBE-SERVICES", "KUBE-MARK-MASQ", STALE_CHAIN)
    assert table(text, "filter") == removal("KUBE-FORWARD")
