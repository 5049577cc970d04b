"""The real programs, both backends in both families, take what is printed, and have what was meant afterwards."""

import itertools
from pathlib import Path

import pytest

from knft.model.names import Family
from knft_compat.iptables.jump_table import JUMPS, KUBELET_JUMPS
from knft_compat.jumps import Jump
from tests.compat.iptables_page import endpoints, listed, printed, restore, service
from tests.compat.loading import (
    BACKENDS,
    EVERY_PROGRAM,
    PROGRAMS,
    check_loads,
    load,
    namespace,
    own_chains,
    run_script,
    saved,
)
from tests.compat.rich import FLAGS, LONGEST, changed_cluster, rich_cluster
from tests.compat.saved import Chains, Meant, meant, tables

pytestmark = pytest.mark.kernel


def flags_for(family: Family) -> tuple[str, ...]:
    """Return the flags that all renders here have; not every kernel has the counters of nfacct."""
    return (*FLAGS, "--no-nfacct", "--family", family.value.lower())


@EVERY_PROGRAM
def test_a_full_sync_of_a_rich_cluster_loads(family: Family, backend: str) -> None:
    check_loads(restore(rich_cluster(), *flags_for(family)), family, backend)


VARIANTS = {
    "networks": ["--nodeport-addresses", "192.0.2.0/24,127.0.0.0/8,2001:db8::/32"],
    "not on loopback": ["--no-iptables-localhost-nodeports", "--conntrack-tcp-be-liberal", "--no-random-fully"],
    "highest bit": ["--masquerade-bit", "31", "--masquerade-all"],
    "interfaces": ["--detect-local-mode", "InterfaceNamePrefix", "--pod-interface-name-prefix", "abcdefghijklmn"],
}


@pytest.mark.parametrize("variant", VARIANTS)
@EVERY_PROGRAM
def test_flags_load(family: Family, backend: str, variant: str) -> None:
    objects = [item for item in rich_cluster() if item["metadata"]["name"].startswith("both-local")]
    check_loads(restore(objects, *flags_for(family), *VARIANTS[variant]), family, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_large_cluster_loads(backend: str) -> None:
    addresses = [f"10.244.{number // 250}.{number % 250 + 1}" for number in range(1001)]
    text = restore([service(), endpoints("ns1/svc1", *addresses)], *flags_for(Family.IPV4))
    check_loads(text, Family.IPV4, backend)


def test_the_longest_names_are_among_them() -> None:
    """The programs cut a comment of more than 255 bytes, in silence, and load the rule."""
    text = restore(rich_cluster(), *flags_for(Family.IPV4))
    assert f'"{LONGEST}:{"p" * 63} cluster IP"' in text


@EVERY_PROGRAM
def test_a_partial_sync_leads_to_what_a_full_one_makes(tmp_path: Path, family: Family, backend: str) -> None:
    before = tmp_path / "before.json"
    before.write_text(listed(*rich_cluster()))
    partial = restore(changed_cluster(), *flags_for(family), "--before", str(before))
    full = restore(changed_cluster(), *flags_for(family))
    assert len(partial) < len(full) / 2
    with namespace() as made:
        load(made, restore(rich_cluster(), *flags_for(family)), family, backend)
        load(made, partial, family, backend)
        assert own_chains(saved(made, family, backend)) == own_chains(tables(full, family))


@EVERY_PROGRAM
def test_what_iptables_save_prints_tells_stale_chains(tmp_path: Path, family: Family, backend: str) -> None:
    existing = tmp_path / "saved.txt"
    fresh = restore(changed_cluster(), *flags_for(family))
    with namespace() as made:
        load(made, restore(rich_cluster(), *flags_for(family)), family, backend)
        existing.write_text(made.run([f"{PROGRAMS[family]}-{backend}-save"]).stdout)
        full = restore(changed_cluster(), *flags_for(family), "--existing", str(existing))
        assert full.count("\n-X ") > 3
        load(made, full, family, backend)
        assert own_chains(saved(made, family, backend)) == own_chains(tables(fresh, family))


@EVERY_PROGRAM
def test_the_script_syncs_twice_and_cleans_up(tmp_path: Path, family: Family, backend: str) -> None:
    objects, flags = rich_cluster(), flags_for(family)
    script = printed(objects, *flags)
    expected = own_chains(tables(restore(objects, *flags), family))
    expected["filter"].setdefault("KUBE-FIREWALL", ())
    with namespace() as made:
        for _ in range(2):
            run_script(made, script, backend, tmp_path)
            found = saved(made, family, backend)
            assert own_chains(found) == expected
            assert _in_kernels_chains(found) == _jumps(family, KUBELET_JUMPS, JUMPS)
        assert made.read_sysctl("net.ipv4.conf.all.route_localnet") == ("1" if family is Family.IPV4 else "0")

        for _ in range(2):
            run_script(made, printed(objects, *flags, "--cleanup"), backend, tmp_path)
            found = saved(made, family, backend)
            assert own_chains(found) == {"filter": {"KUBE-FIREWALL": expected["filter"]["KUBE-FIREWALL"]}}
            assert _in_kernels_chains(found) == _jumps(family, KUBELET_JUMPS)


def _jumps(family: Family, *groups: tuple[Jump, ...]) -> dict[str, dict[str, list[Meant]]]:
    """Return jumps in the kernel's own chains: each was put in front of those before it."""
    found: dict[str, dict[str, list[Meant]]] = {}
    for jump in itertools.chain.from_iterable(map(reversed, groups)):
        rule = meant(list(jump.arguments), family)
        found.setdefault(jump.table, {}).setdefault(jump.source, []).append(rule)
    return found


def _in_kernels_chains(found: dict[str, Chains]) -> dict[str, dict[str, list[Meant]]]:
    kept = {
        table: {chain: list(rules) for chain, rules in chains.items() if rules and not chain.startswith("KUBE-")}
        for table, chains in found.items()
    }
    return {table: chains for table, chains in kept.items() if chains}
