"""``knft render --backend iptables`` for the objects of kube-proxy's unit tests equals the rules of those tests."""

import pytest

from knft_compat import iptables
from knft_compat.sync_input import Masquerade
from tests.upstream.cases import Case, cases
from tests.upstream.normalize import normalized

_EXCEPTIONS = {
    "TestSyncProxyRulesLargeClusterMode #5": "with more than 1 000 endpoints, kube-proxy deletes stale chains once in "
    "a sync period; a rendered sync has no time, and deletes them at once",
}
"""Cases that differ on purpose, with the reason."""


@pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in cases("iptables")])
def test_rules_are_equal(case: Case) -> None:
    if case.name in _EXCEPTIONS:
        assert _rendered(case) != case.result["iptables-restore"], "remove this exception: the rules are equal"
    else:
        assert _rendered(case) == case.result["iptables-restore"]


def test_exceptions_name_cases() -> None:
    assert _EXCEPTIONS.keys() <= {case.name for case in cases("iptables")}


def _rendered(case: Case) -> list[str]:
    given = case.configuration
    settings = iptables.Settings(
        localhost_node_ports=given["localhostNodePorts"],
        has_nfacct=given["nfAcctCounters"],
        conntrack_is_liberal=given["conntrackTCPLiberal"],
        existing=_existing(given["existingChains"]),
    )
    previous = None if given["fullSync"] else case.previous_changes()
    text = iptables.sync(case.sync_input(settings, previous), settings).part_text("iptables-restore")
    # The tests' proxier has the mark without leading zeros, unlike one that kube-proxy makes.
    return normalized((text or "").replace(Masquerade().mark_text, given["masqueradeMark"]).splitlines())


def _existing(chains: list[str]) -> iptables.ExistingRules:
    lines = ["*nat", *(f":{chain} - [0:0]" for chain in chains), "COMMIT"]
    return iptables.read_existing_rules("existing chains", "\n".join(lines))
