"""The names of Service ports in reports, from the comments of rules and set elements."""

import pytest

from knft.interpret.compare.services import ServiceNames
from knft.interpret.rules import Chain, Collection, Element, Field, Rule, RuleSet, Within

ADDRESS, TCP, PORT = 0x0A600001, 6, 80
LONG = f"{'a' * 63}/{'b' * 63}:http"
OTHER = "shop/web:http"


def _knft(name: str) -> RuleSet:
    element = Element((ADDRESS, TCP, PORT), comment=name[:128])  # as the kernel keeps it
    return RuleSet(version=4, collections={"ip knft service-ips": Collection("ip knft service-ips", (element,))})


def _kube_proxy(name: str) -> RuleSet:
    fields = {Field.DESTINATION: ADDRESS, Field.PROTOCOL: TCP, Field.DESTINATION_PORT: PORT}
    steps = tuple(Within(field, ((number, number),)) for field, number in fields.items())
    rule = Rule(steps, comment=f"{name} cluster IP")
    return RuleSet(version=4, chains={"nat KUBE-SERVICES": Chain("nat KUBE-SERVICES", (rule,))})


@pytest.mark.parametrize(
    ("rule_sets", "expected"),
    [
        ([_knft(LONG), _kube_proxy(LONG)], LONG),
        ([_kube_proxy(LONG), _knft(LONG)], LONG),
        ([_knft(LONG)], LONG[:128]),
        ([_knft(OTHER), _kube_proxy(LONG)], OTHER),
        ([_knft(LONG), _kube_proxy(OTHER)], LONG[:128]),
    ],
)
def test_name_that_the_kernel_cuts_is_completed_by_the_other_side(rule_sets: list[RuleSet], expected: str) -> None:
    names = ServiceNames(rule_sets)

    assert len(LONG) > 128
    assert names.name(ADDRESS, TCP, PORT, is_local=False) == expected
    assert names.name(ADDRESS, TCP, 443, is_local=False) == expected.partition(":")[0]
