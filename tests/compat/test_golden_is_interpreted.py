"""All rules that kube-proxy writes, in every state of the golden files, are interpreted completely."""

import itertools
from collections.abc import Iterator

import pytest

from knft.families import Family, IpVersion
from knft.interpret.iptables import read
from knft.interpret.ipvs import read as read_servers
from knft.interpret.rules import RuleSet, Step, Unknown
from tests.compat.golden import FOLDER, Golden, Section
from tests.compat.golden import read as read_golden
from tests.compat.golden_steps import GOLDENS, part, restore_sets, steps_of
from tests.support.iptables_programs import BACKENDS, load, namespace

VERSIONS: dict[Family, IpVersion] = {Family.IPV4: 4, Family.IPV6: 6}
GOLDENS_AND_FAMILIES = [
    pytest.param(golden, family, id=f"{golden.path.stem}-{family.value}")
    for golden, family in itertools.product(GOLDENS, Family)
]
LOADED_GOLDENS = (
    "iptables-overall",
    "iptables-affinity",
    "iptables-large-cluster",
    "iptables-protocols",
    "ipvs-node-port",
)


def all_steps(rules: RuleSet) -> Iterator[Step]:
    return (step for chain in rules.chains.values() for rule in chain.rules for step in rule.steps)


def parse_input(golden: Golden, family: Family) -> RuleSet:
    """Parse the input of the programs, including rules that match IPVS packets."""
    steps = list(steps_of(golden, family))
    last = "" if "--cleanup" in golden.header["flags"] else part(golden, "iptables-restore", family)
    return read("".join(step.rules for step in steps) + last, VERSIONS[family], "".join(step.sets for step in steps))


@pytest.mark.parametrize(("golden", "family"), GOLDENS_AND_FAMILIES)
def test_all_rules_of_kube_proxy_are_interpreted(golden: Golden, family: Family) -> None:
    rules = parse_input(golden, family)
    assert rules.chains
    assert [step for step in all_steps(rules) if isinstance(step, Unknown)] == []


@pytest.mark.kernel
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", LOADED_GOLDENS)
def test_rules_printed_by_the_kernel_are_equivalent(name: str, backend: str) -> None:
    golden = read_golden(FOLDER / f"{name}.golden")
    steps = list(steps_of(golden, Family.IPV4))
    with namespace() as made:
        for step in steps:
            restore_sets(made, step.sets)
            load(made, step.rules, Family.IPV4, backend)
        sets = made.run(["ipset", "save"]).stdout
        saved = read(made.run([f"iptables-{backend}-save"]).stdout, 4, sets)
    expected = read("".join(step.rules for step in steps), 4, "".join(step.sets for step in steps))
    for chain in expected.chains.values():
        assert [(rule.steps, rule.comment) for rule in saved.chains[chain.name].rules] == [
            (rule.steps, rule.comment) for rule in chain.rules
        ]
    assert {key: _entries(saved, key) for key in saved.collections} == {
        key: _entries(expected, key) for key in expected.collections
    }


def _entries(rules: RuleSet, name: str) -> set[tuple[object, ...]]:
    return {element.key for element in rules.collections[name].elements}


GOLDENS_WITH_ALL_SERVERS = [
    golden
    for golden in GOLDENS
    if golden.header["backend"] == "ipvs" and all(section.name != "existing-ipvs" for section in golden.sections)
]
"""States whose output contains all virtual servers; the others only contain changes."""


@pytest.mark.parametrize("golden", GOLDENS_WITH_ALL_SERVERS, ids=lambda golden: golden.path.stem)
@pytest.mark.parametrize("family", list(Family), ids=lambda family: family.value)
def test_virtual_servers_are_parsed(golden: Golden, family: Family) -> None:
    printed = "\n".join(golden.render_section(Section("ipvsadm", family.value.lower(), ())))
    found = read_servers(printed, VERSIONS[family])
    assert len(found) == printed.count("-A ")
    assert sum(len(server.real_servers) for server in found) == printed.count("-a ")
