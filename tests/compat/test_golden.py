"""Tests that the output of the legacy modes equals the golden files, most of which are written by hand."""

import pytest

from tests.compat.golden import FOLDER, Golden, Section, read, read_all
from tests.compat.golden.listing import chains, side

GOLDENS = read_all()
SECTIONS = [
    pytest.param(golden, section, id=f"{golden.path.stem}-{section.name}-{section.family}".replace(" ", "-"))
    for golden in GOLDENS
    for section in golden.expected_sections
]
MASQUERADE_CASES = ("masquerade-all", "cluster-cidr", "load-balancer", "node-port", "external-ips")
UPSTREAM_CHAIN_NAMES = {
    "ns1/svc1:p80 cluster IP": "KUBE-SVC-XPGD46QRK7WJZT7O",
    "ns1/svc1:p80 -> 10.180.0.1:80": "KUBE-SEP-SXIVWICOYRO3J4NJ",
    "ns2/svc2:p80 cluster IP": "KUBE-SVC-GNZBNJ2PO5MGZ6GT",
    "ns2/svc2:p80 loadbalancer IP": "KUBE-EXT-GNZBNJ2PO5MGZ6GT",
    "ns2/svc2:p80 -> 10.180.0.2:80": "KUBE-SEP-RS4RBKLTHTF2IUXJ",
    "ns3/svc3:p80 cluster IP": "KUBE-SVC-X27LE4BHSL4DOUIK",
    "ns4/svc4:p80 external IP": "KUBE-EXT-4SW47YFZTEDKD3PK",
    "ns5/svc5:p80 loadbalancer IP": "KUBE-FW-NUKIZ6OKUXPJNT4C",
}
"""Chain names of upstream's tests, by the comment of the jump (docs/behaviour/iptables.md#chain-names)."""


@pytest.mark.parametrize(("golden", "section"), SECTIONS)
def test_command_output_matches_golden_file(golden: Golden, section: Section) -> None:
    """After an intended change, ``python -m tests.compat.golden`` regenerates the files not written by hand."""
    rendered = golden.render_section(section)
    if section.name == "listing":
        assert chains(rendered) == chains(side(section.rules, "+"))
    elif section.name == "sets":
        assert list(map(_sorted, rendered)) == list(map(_sorted, section.rules))
    else:
        assert rendered == section.rules


def _sorted(entries: str) -> list[str]:
    name, *others = entries.split()
    return [name, *sorted(others)]


def test_golden_files_include_the_original_documents_listings() -> None:
    assert len(GOLDENS) >= 25
    assert sum(golden.is_transcribed for golden in GOLDENS) >= 10
    for number, case in enumerate(MASQUERADE_CASES, start=1):
        golden = read(FOLDER / f"ipvs-document-003-{case}.golden")
        assert golden.is_transcribed
        assert f"2.{number}" in golden.header["from"]
        (listing,) = (section for section in golden.expected_sections if section.name == "listing")
        lines = side(listing.rules, "-")
        # A document lists only built-in chains and chains with references.
        assert not any("(0 references)" in line for line in lines)
        document = chains(lines)
        assert {"PREROUTING", "OUTPUT", "POSTROUTING", "KUBE-POSTROUTING", "KUBE-SERVICES"} <= document.keys()


@pytest.mark.parametrize(("comment", "chain"), UPSTREAM_CHAIN_NAMES.items())
def test_chain_names_equal_those_of_upstream_tests(comment: str, chain: str) -> None:
    golden = read(FOLDER / "iptables-overall.golden")
    (section,) = golden.expected_sections
    for rules in (section.rules, golden.render_section(section)):
        assert chain in {rule.rpartition(" -j ")[2] for rule in rules if f'"{comment}"' in rule}


def test_regenerating_generated_files_changes_nothing() -> None:
    """Regenerated files keep their comments."""
    for golden in GOLDENS:
        if not golden.is_transcribed:
            assert golden.regenerated() == golden.path.read_text()
