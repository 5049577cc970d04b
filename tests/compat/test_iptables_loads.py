"""Tests that both iptables backends load the output in both families, and print equal rules."""

import itertools
from pathlib import Path

import pytest

from knft.families import Family
from knft_compat.iptables.jump_table import JUMPS, KUBELET_JUMPS
from knft_compat.jumps import Jump
from tests.compat.full_cluster import FLAGS, LONGEST, changed_cluster, full_cluster
from tests.compat.iptables_render import endpoints, manifest_list, render, restore_input, service
from tests.support.iptables_programs import (
    BACKENDS,
    PROGRAMS,
    assert_loads,
    each_family_and_backend,
    kube_chains,
    load,
    namespace,
    run_script,
    saved_tables,
)
from tests.support.parsed_rules import Chains, ParsedRule, parse_rule, parse_tables

pytestmark = pytest.mark.kernel


def flags_for(family: Family) -> tuple[str, ...]:
    """Return the flags of all renders here; without nfacct counters, which not every kernel has."""
    return (*FLAGS, "--no-nfacct", "--family", family.value.lower())


@each_family_and_backend
def test_full_sync_of_full_cluster_loads(family: Family, backend: str) -> None:
    assert_loads(restore_input(full_cluster(), *flags_for(family)), family, backend)


VARIANTS = {
    "NodePort networks": ["--nodeport-addresses", "192.0.2.0/24,127.0.0.0/8,2001:db8::/32"],
    "localhost NodePorts off": [
        "--no-iptables-localhost-nodeports",
        "--conntrack-tcp-be-liberal",
        "--no-random-fully",
    ],
    "masquerade bit 31": ["--masquerade-bit", "31", "--masquerade-all"],
    "pods detected by interface": [
        "--detect-local-mode",
        "InterfaceNamePrefix",
        "--pod-interface-name-prefix",
        "abcdefghijklmn",
    ],
}


@pytest.mark.parametrize("variant", VARIANTS)
@each_family_and_backend
def test_rules_of_each_flag_load(family: Family, backend: str, variant: str) -> None:
    objects = [item for item in full_cluster() if item["metadata"]["name"].startswith("both-local")]
    assert_loads(restore_input(objects, *flags_for(family), *VARIANTS[variant]), family, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_large_cluster_loads(backend: str) -> None:
    addresses = [f"10.244.{number // 250}.{number % 250 + 1}" for number in range(1001)]
    text = restore_input([service(), endpoints("ns1/svc1", *addresses)], *flags_for(Family.IPV4))
    assert_loads(text, Family.IPV4, backend)


def test_full_cluster_contains_the_longest_names() -> None:
    """The programs silently truncate comments to 255 bytes."""
    text = restore_input(full_cluster(), *flags_for(Family.IPV4))
    assert f'"{LONGEST}:{"p" * 63} cluster IP"' in text


@each_family_and_backend
def test_partial_sync_gives_the_rules_of_a_full_sync(tmp_path: Path, family: Family, backend: str) -> None:
    before = tmp_path / "before.json"
    before.write_text(manifest_list(*full_cluster()))
    partial = restore_input(changed_cluster(), *flags_for(family), "--before", str(before))
    full = restore_input(changed_cluster(), *flags_for(family))
    assert len(partial) < len(full) / 2
    with namespace() as netns:
        load(netns, restore_input(full_cluster(), *flags_for(family)), family, backend)
        load(netns, partial, family, backend)
        assert kube_chains(saved_tables(netns, family, backend)) == kube_chains(parse_tables(full, family))


@each_family_and_backend
def test_stale_chains_are_found_in_iptables_save_output(tmp_path: Path, family: Family, backend: str) -> None:
    existing = tmp_path / "saved.txt"
    fresh = restore_input(changed_cluster(), *flags_for(family))
    with namespace() as netns:
        load(netns, restore_input(full_cluster(), *flags_for(family)), family, backend)
        existing.write_text(netns.run([f"{PROGRAMS[family]}-{backend}-save"]).stdout)
        full = restore_input(changed_cluster(), *flags_for(family), "--existing", str(existing))
        assert full.count("\n-X ") > 3
        load(netns, full, family, backend)
        assert kube_chains(saved_tables(netns, family, backend)) == kube_chains(parse_tables(fresh, family))


@each_family_and_backend
def test_script_syncs_twice_and_cleans_up(tmp_path: Path, family: Family, backend: str) -> None:
    objects, flags = full_cluster(), flags_for(family)
    script = render(objects, *flags)
    expected = kube_chains(parse_tables(restore_input(objects, *flags), family))
    expected["filter"].setdefault("KUBE-FIREWALL", ())
    with namespace() as netns:
        for _ in range(2):
            run_script(netns, script, backend, tmp_path)
            tables = saved_tables(netns, family, backend)
            assert kube_chains(tables) == expected
            assert _in_built_in_chains(tables) == _jumps(family, KUBELET_JUMPS, JUMPS)
        assert netns.read_sysctl("net.ipv4.conf.all.route_localnet") == ("1" if family is Family.IPV4 else "0")

        for _ in range(2):
            run_script(netns, render(objects, *flags, "--cleanup"), backend, tmp_path)
            tables = saved_tables(netns, family, backend)
            assert kube_chains(tables) == {"filter": {"KUBE-FIREWALL": expected["filter"]["KUBE-FIREWALL"]}}
            assert _in_built_in_chains(tables) == _jumps(family, KUBELET_JUMPS)


def _jumps(family: Family, *groups: tuple[Jump, ...]) -> dict[str, dict[str, list[ParsedRule]]]:
    """Return the jumps in built-in chains; each was inserted before the previous ones."""
    jumps: dict[str, dict[str, list[ParsedRule]]] = {}
    for jump in itertools.chain.from_iterable(map(reversed, groups)):
        rule = parse_rule(list(jump.arguments), family)
        jumps.setdefault(jump.table, {}).setdefault(jump.source, []).append(rule)
    return jumps


def _in_built_in_chains(tables: dict[str, Chains]) -> dict[str, dict[str, list[ParsedRule]]]:
    kept = {
        table: {chain: list(rules) for chain, rules in chains.items() if rules and not chain.startswith("KUBE-")}
        for table, chains in tables.items()
    }
    return {table: chains for table, chains in kept.items() if chains}
