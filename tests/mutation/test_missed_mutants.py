"""Mutants that earlier versions of the comparison missed."""

import re

from knft.comparison.captures import Capture
from knft.proxy_mode import Mode
from tests.mutation.evaluation import evaluate
from tests.mutation.iptables_save import IptablesSave
from tests.mutation.operator import Expectation
from tests.mutation.subjects import subjects


def test_timeouts_of_all_chains_that_check_a_list_are_compared() -> None:
    """Two chains check one list: the timeout of each counts for packets that go through it."""
    subject = subjects(1)[0]
    for chain in ("KUBE-SVC-*", "KUBE-SVL-*"):
        saved = IptablesSave(subject.captures(Mode.IPTABLES).rules)
        place = saved.find("nat", chain, "shop/fort:http.*--rcheck")[0]
        saved.replace(place, place.text.replace("--seconds 60", "--seconds 61"))
        evaluation = evaluate(
            subject.sides(Mode.IPTABLES, Capture({4: saved.text()})), Expectation(("shop/fort:http",))
        )
        assert evaluation.is_named
        assert any("61 s" in sentence for sentence in evaluation.sentences)


def test_rule_that_sends_packets_to_another_service_is_a_difference() -> None:
    """Packets to a cluster IP that reach another Service differ, unless that Service claims the address, too."""
    subject = subjects(0)[0]
    saved = IptablesSave(subject.captures(Mode.IPTABLES).rules)
    first = saved.find("nat", "KUBE-SERVICES")[0]
    web = saved.find("nat", "KUBE-SERVICES", "shop/web:http cluster IP")[0]
    loyal = saved.find("nat", "KUBE-SERVICES", "shop/loyal:http cluster IP")[0]
    taken = re.sub(r'"shop/web:http cluster IP"', "shop/loyal:http", web.text).replace(web.target, loyal.target)
    saved.insert(first, taken)
    assert evaluate(subject.sides(Mode.IPTABLES, Capture({4: saved.text()})), Expectation(("shop/web:http",))).is_named
