"""Rules of other programs are parsed; each test lists the expressions that are not interpreted."""

from pathlib import Path

import pytest

from knft.interpret.iptables import read
from knft.interpret.rules import RuleSet, Unknown
from tests.support.iptables_programs import BACKENDS, namespace

FOLDER = Path(__file__).parent / "captures"
UNKNOWN = {
    "flannel": [],
    "docker": [],
    "calico": ["-m addrtype --limit-iface-out"],
    "cilium": [
        "-j CT --notrack",
        "-m socket --transparent",
        "-j TPROXY --on-port 37379 --on-ip 127.0.0.1 --tproxy-mark 0x200/0xffffffff",
    ],
    "firewalld": ["-m limit --limit 10/min"],
    "ufw": [
        "-m icmp --icmp-type 3",
        "-m icmp --icmp-type 8",
        "-m limit --limit 3/min --limit-burst 10",
        "-m recent --update --seconds 30 --hitcount 6 --name DEFAULT --mask 255.255.255.255 --rsource",
    ],
    "libvirt": ["-m conntrack --ctdir ORIGINAL"],
}


def _unknown(rules: RuleSet) -> set[str]:
    steps = (step for chain in rules.chains.values() for rule in chain.rules for step in rule.steps)
    return {step.text for step in steps if isinstance(step, Unknown)}


def _texts(name: str) -> tuple[str, str]:
    sets = FOLDER / f"{name}.sets"
    return (FOLDER / f"{name}.rules").read_text(), sets.read_text() if sets.exists() else ""


@pytest.mark.parametrize("name", UNKNOWN)
def test_uninterpreted_expressions_of_other_programs(name: str) -> None:
    text, sets = _texts(name)
    rules = read(text, 4, sets)
    assert _unknown(rules) == set(UNKNOWN[name])
    assert sum(len(chain.rules) for chain in rules.chains.values()) >= text.count("\n-A ")


@pytest.mark.kernel
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", UNKNOWN)
def test_kernel_accepts_and_prints_the_captures(name: str, backend: str) -> None:
    text, sets = _texts(name)
    # iptables-legacy rejects -o in PREROUTING, which Cilium uses; not every kernel has conntrack helpers.
    text = text.replace("! -o lo ", "").replace("-j CT --helper netbios-ns", "-j CT")
    with namespace() as made:
        made.run(["ipset", "restore"], stdin=sets)
        made.run([f"iptables-{backend}-restore"], stdin=text)
        saved = read(made.run([f"iptables-{backend}-save"]).stdout, 4, made.run(["ipset", "save"]).stdout)
    expected = read(text, 4, sets)
    assert _unknown(saved) == _unknown(expected)
    assert saved.chains.keys() == expected.chains.keys()
    for name_of_chain, chain in expected.chains.items():
        assert [rule.steps for rule in saved.chains[name_of_chain].rules] == [rule.steps for rule in chain.rules]


def test_every_capture_is_tested() -> None:
    assert {path.stem for path in FOLDER.glob("*.rules")} == set(UNKNOWN)
