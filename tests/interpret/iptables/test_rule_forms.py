"""Every form of rule is loaded by the real programs of both backends and families, and parsed into the right steps."""

import itertools
from collections.abc import Iterable

import pytest

from knft.families import IpVersion
from knft.interpret.iptables import read
from knft.interpret.rules import RuleSet
from tests.interpret.iptables.rule_forms import AT_THE_END, BOTH, IPV4, IPV6, OF_SETS, Form
from tests.support.iptables_programs import namespace

BACKENDS = ("nft", "legacy")
PROGRAMS: dict[IpVersion, str] = {4: "iptables", 6: "ip6tables"}
FORMS: dict[IpVersion, tuple[Form, ...]] = {4: (*BOTH, *IPV4, *AT_THE_END), 6: (*BOTH, *IPV6, *AT_THE_END)}
EVERYWHERE = pytest.mark.parametrize(("version", "backend"), list(itertools.product((4, 6), BACKENDS)))


def _numbered(forms: Iterable[Form]) -> list[tuple[str, Form]]:
    return [(f"T{number}", form) for number, form in enumerate(forms)]


def _restore(forms: Iterable[Form]) -> str:
    """Return input of iptables-restore with one chain for each form, and chain OTHER as a jump target."""
    lines = []
    listed = _numbered(forms)
    for table in sorted({form.table for _, form in listed}):
        own = [(name, form) for name, form in listed if form.table == table]
        lines += [f"*{table}", ":OTHER - [0:0]", *(f":{name} - [0:0]" for name, _ in own)]
        lines += [*(f"-A {name} {form.text}" for name, form in own), "COMMIT"]
    return "\n".join((*lines, ""))


def _check(rules: RuleSet, forms: Iterable[Form]) -> None:
    for name, form in _numbered(forms):
        read_rules = rules.chains[f"{form.table} {name}"].rules
        assert tuple(rule.steps for rule in read_rules) == form.alternatives, form.text


@pytest.mark.kernel
@EVERYWHERE
def test_printed_rules_have_the_expected_steps(version: IpVersion, backend: str) -> None:
    program = f"{PROGRAMS[version]}-{backend}"
    with namespace() as made:
        made.run([f"{program}-restore"], stdin=_restore(FORMS[version]))
        for arguments in ([], ["-c"]):
            _check(read(made.run([f"{program}-save", *arguments]).stdout, version), FORMS[version])


@pytest.mark.parametrize("version", [4, 6])
def test_loaded_rules_have_the_expected_steps(version: IpVersion) -> None:
    """Except for the text of unknown expressions, which the programs complete and reorder."""
    rules = read(_restore(FORMS[version]), version)
    plain = [form for form in FORMS[version] if "Unknown" not in repr(form.alternatives)]
    assert len(plain) > 60
    for name, form in _numbered(FORMS[version]):
        if form in plain:
            steps = tuple(rule.steps for rule in rules.chains[f"{form.table} {name}"].rules)
            assert steps == form.alternatives, form.text


SETS = """
create ips hash:ip
create frontends hash:ip,port
create loop hash:ip,port,ip
create ports bitmap:port range 0-65535
create interfaces hash:net,iface
create others bitmap:port range 0-65535
create seen hash:ip timeout 60
add ips 10.0.0.1
add frontends 10.0.0.1,tcp:80
add ports 80
"""


@pytest.mark.kernel
@pytest.mark.parametrize("backend", BACKENDS)
def test_rules_that_match_sets(backend: str) -> None:
    with namespace() as made:
        made.run(["ipset", "restore"], stdin=SETS)
        made.run([f"iptables-{backend}-restore"], stdin=_restore(OF_SETS))
        saved = made.run([f"iptables-{backend}-save"]).stdout
        rules = read(saved, 4, made.run(["ipset", "save"]).stdout)
    _check(rules, OF_SETS)
    assert rules.collections["ipset seen"].is_dynamic
    assert not rules.collections["ipset ips"].is_dynamic
