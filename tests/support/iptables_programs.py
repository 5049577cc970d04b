"""Loads iptables-restore input with the real programs in a network namespace, and reads the rules back."""

import itertools
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from knft.families import Family
from tests.support.lab.namespace import Namespace
from tests.support.parsed_rules import Chains, parse_tables

BACKENDS = ("nft", "legacy")
PROGRAMS = {Family.IPV4: "iptables", Family.IPV6: "ip6tables"}
each_family_and_backend = pytest.mark.parametrize(
    ("family", "backend"), list(itertools.product(Family, BACKENDS)), ids=lambda value: getattr(value, "value", value)
)
MARK_DROP = "*nat\n:KUBE-MARK-DROP - [0:0]\nCOMMIT\n"
"""iptables-restore input that creates the kubelet's chain, to which rules of document 003 jump."""
_BUILT_IN_CHAINS = {"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"}
_LEGACY_WARNING = "Ignoring deprecated --wait-interval option"
_OPTIONS = ("-w", "5", "-W", "100000", "--noflush", "--counters")


@contextmanager
def namespace() -> Iterator[Namespace]:
    """Make an empty network namespace for a block."""
    netns = Namespace.create("loading")
    try:
        yield netns
    finally:
        netns.close()


def assert_loads(text: str, family: Family, backend: str) -> None:
    """Assert that a backend (one of BACKENDS) loads the input, and that the rules read back are equal.

    The input must be without nfacct, which not every kernel has (``without_nfacct``), and without IPVS' ipsets.
    """
    with namespace() as netns:
        load(netns, text, family, backend)
        saved = kube_chains(saved_tables(netns, family, backend))
    assert saved == kube_chains(parse_tables(text, family))


def load(netns: Namespace, text: str, family: Family, backend: str) -> None:
    """Load input with the real iptables-restore."""
    netns.run([f"{PROGRAMS[family]}-{backend}-restore", *_OPTIONS], stdin=text)


def run_script(netns: Namespace, text: str, backend: str, folder: Path) -> None:
    """Run an output's script with the programs of one backend, and assert that nothing is printed."""
    for name in (*PROGRAMS.values(), *(f"{program}-restore" for program in PROGRAMS.values())):
        program, _, action = name.partition("-")
        executable = shutil.which("-".join(filter(None, (program, backend, action))))
        link = folder / name
        if executable is not None and not link.is_symlink():
            link.symlink_to(executable)
    result = netns.run(["env", f"PATH={folder}:{os.environ['PATH']}", "sh", "-e"], stdin=text)
    errors = [line for line in result.stderr.splitlines() if not line.startswith(_LEGACY_WARNING)]
    assert (result.stdout, errors) == ("", [])


def saved_tables(netns: Namespace, family: Family, backend: str) -> dict[str, Chains]:
    """Return all tables, as the real iptables-save prints them."""
    return parse_tables(netns.run([f"{PROGRAMS[family]}-{backend}-save"]).stdout, family)


def kube_chains(tables: dict[str, Chains]) -> dict[str, Chains]:
    """Return the chains of Kubernetes, without tables that have none."""
    own = {
        table: {chain: rules for chain, rules in chains.items() if chain.startswith("KUBE-")}
        for table, chains in tables.items()
    }
    return {table: chains for table, chains in own.items() if chains}


def without_empty_built_in_chains(tables: dict[str, Chains]) -> dict[str, Chains]:
    """Return all chains except empty built-in ones, without tables that have no other chains."""
    kept = {
        table: {chain: rules for chain, rules in chains.items() if rules or chain not in _BUILT_IN_CHAINS}
        for table, chains in tables.items()
    }
    return {table: chains for table, chains in kept.items() if chains}


def without_nfacct(text: str) -> str:
    """Return the input with nfacct matches removed from the rules."""
    return re.sub(r" -m nfacct --nfacct-name \S+", "", text)


def without_ipvs_matches(text: str) -> str:
    """Return the input without rules with an ipvs match, which not every kernel supports."""
    return "".join(line for line in text.splitlines(keepends=True) if " -m ipvs " not in line)
