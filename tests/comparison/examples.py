"""The examples' cluster as kube-proxy serves it, and commands about it."""

import os
import shutil
from pathlib import Path

from tests.support.knft_command import KNFT
from tests.support.lab.namespace import Namespace

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
ADDRESSES = ("192.0.2.11/32", "2001:db8:1::11/128")
NODE = ("--node", "node-1", "--cluster-cidr", "10.244.0.0/16,fd00:10:244::/48")
LOCAL = ("--local-address", "192.0.2.11,2001:db8:1::11,127.0.0.1,::1")
DIFF = (*KNFT, "diff", "--live", "-f", str(EXAMPLES), *NODE)


def load_iptables(node: Namespace, programs: Path | None = None) -> None:
    """Put the rules in force, with the programs of a folder, if one is given."""
    path = os.environ["PATH"] if programs is None else f"{programs}:{os.environ['PATH']}"
    for family in ("ipv4", "ipv6"):
        command = [*KNFT, "render", "-f", str(EXAMPLES), *NODE, *LOCAL, "--backend", "iptables", "--no-nfacct"]
        script = node.run([*command, "--family", family]).stdout
        node.run(["env", f"PATH={path}", "sh", "-e"], stdin=script)


def legacy_programs(folder: Path) -> Path:
    """Make a folder in which the plain names are those of iptables-legacy."""
    for family in ("iptables", "ip6tables"):
        for end in ("", "-restore", "-save"):
            program = shutil.which(f"{family}-legacy{end}")
            assert program is not None
            (folder / f"{family}{end}").symlink_to(os.path.realpath(program))
    return folder


def in_force(node: Namespace) -> str:
    """Return everything that a comparison could have changed, without counters and dates."""
    programs = ("iptables-nft-save", "ip6tables-nft-save", "iptables-legacy-save", "ip6tables-legacy-save")
    texts = [node.run([program]).stdout for program in programs]
    texts += [node.run(["nft", "list", "ruleset"]).stdout, node.run(["ip", "address"]).stdout]
    lines = "\n".join(texts).splitlines()
    return "\n".join(line.partition(" [")[0] for line in lines if not line.startswith("#"))
