"""Loads kube-proxy's rules for the cluster in examples/, and commands that compare them."""

import os
import shutil
from pathlib import Path

from tests.support.knft_command import KNFT
from tests.support.lab.namespace import Namespace

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
ADDRESSES = ("192.0.2.11", "2001:db8:1::11")
NODE = ("--node", "node-1", "--cluster-cidr", "10.244.0.0/16,fd00:10:244::/48")
LOCAL = ("--local-address", "192.0.2.11,2001:db8:1::11,127.0.0.1,::1")
DIFF = (*KNFT, "diff", "--live", "-f", str(EXAMPLES), *NODE)


def load_iptables(node: Namespace, programs: Path | None = None) -> None:
    """Load the rules of kube-proxy's iptables mode, with the iptables programs of a folder if one is given."""
    path = os.environ["PATH"] if programs is None else f"{programs}:{os.environ['PATH']}"
    for family in ("ipv4", "ipv6"):
        command = [*KNFT, "render", "-f", str(EXAMPLES), *NODE, *LOCAL, "--backend", "iptables", "--no-nfacct"]
        script = node.run([*command, "--family", family]).stdout
        node.run(["env", f"PATH={path}", "sh", "-e"], stdin=script)


def legacy_programs(folder: Path) -> Path:
    """Fill a folder with links so that ``iptables`` and ``ip6tables`` run the legacy programs; return it."""
    for family in ("iptables", "ip6tables"):
        for suffix in ("", "-restore", "-save"):
            program = shutil.which(f"{family}-legacy{suffix}")
            assert program is not None
            (folder / f"{family}{suffix}").symlink_to(os.path.realpath(program))
    return folder


def machine_state(node: Namespace) -> str:
    """Return all rules and addresses of the machine, without counters and dates."""
    programs = ("iptables-nft-save", "ip6tables-nft-save", "iptables-legacy-save", "ip6tables-legacy-save")
    texts = [node.run([program]).stdout for program in programs]
    texts += [node.run(["nft", "list", "ruleset"]).stdout, node.run(["ip", "address"]).stdout]
    lines = "\n".join(texts).splitlines()
    return "\n".join(line.partition(" [")[0] for line in lines if not line.startswith("#"))
