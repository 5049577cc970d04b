"""Mutants that were once not found, each for a reason of its own."""

import re

from knft.cli.captured import Texts
from knft.takeover.names import Mode
from tests.interpret.mutation.judging import judged
from tests.interpret.mutation.operator import Touched
from tests.interpret.mutation.saved import Saved
from tests.interpret.mutation.subjects import subjects


def test_each_chain_says_how_old_a_memory_may_be() -> None:
    """Two chains look into one list: the timeout of either counts for those who come through it."""
    subject = subjects(1)[0]
    for chain in ("KUBE-SVC-*", "KUBE-SVL-*"):
        saved = Saved(subject.saved(Mode.IPTABLES).rules)
        place = saved.find("nat", chain, "shop/fort:http.*--rcheck")[0]
        saved.replace(place, place.text.replace("--seconds 60", "--seconds 61"))
        result = judged(subject.sides(Mode.IPTABLES, Texts({4: saved.text()})), Touched(("shop/fort:http",)))
        assert result.named
        assert any("61 s" in said for said in result.said)


def test_a_rule_of_another_service_is_no_claim() -> None:
    """Who dials a cluster IP and reaches another Service is told so, unless that Service has claimed the address."""
    subject = subjects(0)[0]
    saved = Saved(subject.saved(Mode.IPTABLES).rules)
    first = saved.find("nat", "KUBE-SERVICES")[0]
    web = saved.find("nat", "KUBE-SERVICES", "shop/web:http cluster IP")[0]
    loyal = saved.find("nat", "KUBE-SERVICES", "shop/loyal:http cluster IP")[0]
    taken = re.sub(r'"shop/web:http cluster IP"', "shop/loyal:http", web.text).replace(web.target, loyal.target)
    saved.insert(first, taken)
    assert judged(subject.sides(Mode.IPTABLES, Texts({4: saved.text()})), Touched(("shop/web:http",))).named
