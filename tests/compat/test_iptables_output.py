"""Tests of the iptables mode's output: its parts, in kube-proxy's order, and the static rules."""

import json
import os
import subprocess
from pathlib import Path

from click.testing import CliRunner

from knft.cli.commands import cli
from tests.compat.iptables_render import (
    NODE,
    PODS,
    chains,
    endpoints,
    manifest_list,
    render,
    restore_input,
    rules,
    service,
    table,
)
from tests.support.knft_command import KNFT
from tests.support.kube_objects import parametrize_cases as cases

MARK = "0x00004000"
NEW = "-m conntrack --ctstate NEW "
EXTERNAL = f"{NEW}-m comment --comment 'kubernetes externally-visible service portals' "
JUMPS = [
    ("filter", "INPUT", "KUBE-EXTERNAL-SERVICES", EXTERNAL),
    ("filter", "FORWARD", "KUBE-EXTERNAL-SERVICES", EXTERNAL),
    ("filter", "INPUT", "KUBE-NODEPORTS", "-m comment --comment 'kubernetes health check service ports' "),
    ("filter", "FORWARD", "KUBE-SERVICES", f"{NEW}-m comment --comment 'kubernetes service portals' "),
    ("filter", "OUTPUT", "KUBE-SERVICES", f"{NEW}-m comment --comment 'kubernetes service portals' "),
    ("filter", "FORWARD", "KUBE-FORWARD", "-m comment --comment 'kubernetes forwarding rules' "),
    ("filter", "INPUT", "KUBE-PROXY-FIREWALL", f"{NEW}-m comment --comment 'kubernetes load balancer firewall' "),
    ("filter", "OUTPUT", "KUBE-PROXY-FIREWALL", f"{NEW}-m comment --comment 'kubernetes load balancer firewall' "),
    ("filter", "FORWARD", "KUBE-PROXY-FIREWALL", f"{NEW}-m comment --comment 'kubernetes load balancer firewall' "),
    ("nat", "OUTPUT", "KUBE-SERVICES", "-m comment --comment 'kubernetes service portals' "),
    ("nat", "PREROUTING", "KUBE-SERVICES", "-m comment --comment 'kubernetes service portals' "),
    ("nat", "POSTROUTING", "KUBE-POSTROUTING", "-m comment --comment 'kubernetes postrouting rules' "),
    ("filter", "INPUT", "KUBE-FIREWALL", ""),
    ("filter", "OUTPUT", "KUBE-FIREWALL", ""),
]  # fmt: skip


def jump_commands(program: str) -> list[str]:
    """Return the two commands for each jump."""
    start = f"{program} -w 5 -W 100000"
    commands = []
    for name, source, target, match in JUMPS:
        rule = f"{source} -t {name} {match}-j {target}"
        commands += [f"{start} -N {target} -t {name} 2>/dev/null || true",
                  f"{start} -C {rule} 2>/dev/null || {start} -I {rule}"]  # fmt: skip
    return commands


@cases({"ipv4": ("ipv4", "iptables"), "ipv6": ("ipv6", "ip6tables")})
def test_jumps_are_inserted_unless_they_exist(case: tuple[str, str]) -> None:
    family, program = case
    assert render([], "--part", "jumps", "--family", family).splitlines() == jump_commands(program)


def test_parts_are_in_kube_proxy_order() -> None:
    output = json.loads(render([], "-o", "json"))
    assert output["backend"] == "iptables"
    assert output["family"] == "IPv4"
    assert [(part["part"], part["tool"]) for part in output["parts"]] == [
        ("sysctls", ["sysctl", "-q", "-p", "-"]),
        ("jumps", ["sh"]),
        ("nfacct", ["sh"]),
        ("iptables-restore", ["iptables-restore", "-w", "5", "-W", "100000", "--noflush", "--counters"]),
    ]


def test_json_equals_text() -> None:
    objects = [service(), endpoints("ns1/svc1", "10.180.0.1", "L10.180.0.2")]
    *_, part = json.loads(render(objects, "-o", "json"))["parts"]
    lines = []
    for item in part["tables"]:
        lines += [f"*{item['name']}", *(f":{chain} - [0:0]" for chain in item["chains"])]
        for line in item["lines"]:
            arguments = (f'"{word}"' if " " in word else word for word in line["arguments"])
            lines.append(" ".join(("-A", line["chain"], *arguments)))
        lines.append("COMMIT")
    assert lines == restore_input(objects).splitlines()


@cases({"one family": (["--family", "ipv6"], ["IPv6"]), "both": ([], ["IPv4", "IPv6"])})
def test_part_flag_prints_one_part_as_json(case: tuple[list[str], list[str]]) -> None:
    flags, families = case
    command = ["render", "--backend", "iptables", "-f", "-", "--node", NODE, "-o", "json", "--part", "iptables-restore"]
    done = CliRunner().invoke(cli, [*command, *flags], input=manifest_list())
    outputs = [json.loads(line) for line in done.stdout.splitlines()]
    assert [output["family"] for output in outputs] == families
    assert [[part["part"] for part in output["parts"]] for output in outputs] == [
        ["iptables-restore"] for _ in families
    ]


def test_part_flag_prints_one_part_of_both_families() -> None:
    """Shell commands contain the family's program."""
    command = ["render", "--backend", "iptables", "-f", "-", "--node", NODE, "--part", "jumps"]
    text = CliRunner().invoke(cli, command, input=manifest_list()).stdout
    assert text.splitlines() == [*jump_commands("iptables"), *jump_commands("ip6tables")]


def test_empty_cluster_has_only_static_rules() -> None:
    assert restore_input([], "--cluster-cidr", PODS) == (
        "*filter\n"
        ":KUBE-SERVICES - [0:0]\n"
        ":KUBE-EXTERNAL-SERVICES - [0:0]\n"
        ":KUBE-FORWARD - [0:0]\n"
        ":KUBE-NODEPORTS - [0:0]\n"
        ":KUBE-PROXY-FIREWALL - [0:0]\n"
        ":KUBE-FIREWALL - [0:0]\n"
        '-A KUBE-FIREWALL -m comment --comment "block incoming localnet connections" -d 127.0.0.0/8 ! -s 127.0.0.0/8 '
        "-m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP\n"
        "-A KUBE-FORWARD -m conntrack --ctstate INVALID -m nfacct --nfacct-name ct_state_invalid_dropped_pkts -j DROP\n"
        f'-A KUBE-FORWARD -m comment --comment "kubernetes forwarding rules" -m mark --mark {MARK}/{MARK} -j ACCEPT\n'
        '-A KUBE-FORWARD -m comment --comment "kubernetes forwarding conntrack rule" '
        "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT\n"
        "COMMIT\n"
        "*nat\n"
        ":KUBE-SERVICES - [0:0]\n"
        ":KUBE-NODEPORTS - [0:0]\n"
        ":KUBE-POSTROUTING - [0:0]\n"
        ":KUBE-MARK-MASQ - [0:0]\n"
        f"-A KUBE-POSTROUTING -m mark ! --mark {MARK}/{MARK} -j RETURN\n"
        f"-A KUBE-POSTROUTING -j MARK --xor-mark {MARK}\n"
        '-A KUBE-POSTROUTING -m comment --comment "kubernetes service traffic requiring SNAT" '
        "-j MASQUERADE --random-fully\n"
        f"-A KUBE-MARK-MASQ -j MARK --or-mark {MARK}\n"
        '-A KUBE-SERVICES -m comment --comment "kubernetes service nodeports; NOTE: this must be the last rule in this '
        'chain" -m addrtype --dst-type LOCAL -j KUBE-NODEPORTS\n'
        "COMMIT\n"
    )


def test_ipv6_has_no_sysctl_and_no_localnet_rule() -> None:
    assert render([], "--family", "ipv6", "--part", "sysctls") == ""
    assert "KUBE-FIREWALL" not in chains(restore_input([], "--family", "ipv6"), "filter")
    assert render([], "--part", "sysctls") == "net/ipv4/conf/all/route_localnet = 1\n"


def test_no_random_fully_omits_the_option() -> None:
    *_, masquerade = rules(restore_input([], "--no-random-fully"), "KUBE-POSTROUTING")
    assert masquerade.endswith("-j MASQUERADE")


def test_masquerade_bit_changes_the_mark() -> None:
    text = restore_input([], "--masquerade-bit", "31")
    assert rules(text, "KUBE-MARK-MASQ") == ["-j MARK --or-mark 0x80000000"]
    assert MARK not in text


def test_liberal_conntrack_needs_no_invalid_packet_rule() -> None:
    assert not any("INVALID" in line for line in table(restore_input([], "--conntrack-tcp-be-liberal"), "filter"))


def test_counters_are_created_if_the_kernel_has_nfacct() -> None:
    assert render([], "--part", "nfacct").splitlines() == [
        f"nfacct get {name} >/dev/null 2>&1 || nfacct add {name}"
        for name in ("ct_state_invalid_dropped_pkts", "localhost_nps_accepted_pkts")
    ]
    assert render([], "--part", "nfacct", "--no-nfacct") == ""
    text = restore_input([service(port={"nodePort": 30080}), endpoints("ns1/svc1", "10.180.0.1")], "--no-nfacct")
    assert "nfacct" not in text
    assert rules(text, "KUBE-FORWARD", "filter")[0] == "-m conntrack --ctstate INVALID -j DROP"


def test_script_without_a_program_changes_nothing(tmp_path: Path) -> None:
    """It names all that are missing, of both families; without nfacct counters it needs no nfacct."""
    for name in ("sysctl", "iptables-restore", "ip6tables-restore", "iptables", "ip6tables"):
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\necho {name}\n")
        program.chmod(0o700)
    (tmp_path / "sh").symlink_to("/bin/sh")

    def outcome(*flags: str) -> tuple[int, bool, str]:
        command = ["render", "--backend", "iptables", "-f", "-", "--node", NODE, *flags]
        script = CliRunner().invoke(cli, command, input=manifest_list()).stdout
        done = subprocess.run(
            ["/bin/sh"], input=script, env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False
        )
        return done.returncode, bool(done.stdout), done.stderr

    assert outcome() == (1, False, "nothing was changed, because programs are missing: nfacct\n")
    (tmp_path / "ip6tables-restore").unlink()
    assert outcome()[2] == "nothing was changed, because programs are missing: nfacct ip6tables-restore\n"
    assert outcome("--no-nfacct", "--family", "ipv4") == (0, True, "")


def test_output_of_both_families_in_order() -> None:
    command = [*KNFT, "render", "--backend", "iptables", "-f", "-", "--node", NODE]
    text = subprocess.run(command, input=manifest_list(), capture_output=True, text=True, check=True).stdout
    assert text.index("# kube-proxy in mode iptables, IPv4") < text.index("# kube-proxy in mode iptables, IPv6")


def test_order_does_not_depend_on_the_hash_seed() -> None:
    objects = [
        item for name in ("b/z", "a/y", "b/a", "a/a-b") for item in (service(name), endpoints(name, "10.180.0.1"))
    ]
    command = [*KNFT, "render", "--backend", "iptables", "-f", "-", "--node", NODE]
    outputs = {
        subprocess.run(
            command,
            input=manifest_list(*arranged).encode(),
            capture_output=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
        ).stdout
        for seed, arranged in enumerate((objects, objects[::-1], objects[2:] + objects[:2]), 1)
    }
    assert len(outputs) == 1
    names = [line.split('"')[1].split(":")[0] for line in rules(outputs.pop().decode(), "KUBE-SERVICES")[:-1]]
    assert names == ["a/a-b", "a/y", "b/a", "b/z"]
