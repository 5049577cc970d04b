"""Packets traverse the hooks in the kernel's order, and have the interfaces that the kernel sets at each hook."""

import pytest

from knft.interpret.outcomes import Disposition, Outcome, PacketClass
from knft.interpret.ranges import single
from knft.interpret.rules import Field, Hook, Interface, Marked, SetMark, Step, Translate
from tests.interpret.walk.small_rule_sets import (
    DROP,
    FRONTEND,
    NODE,
    POD,
    base,
    from_node,
    from_outside,
    hit_rules,
    outcome,
    rule_set,
)

HOOKS: tuple[Hook, ...] = ("prerouting", "input", "forward", "output", "postrouting")
TRACED_ACTION = SetMark(0xFFFFFFFF, 0)
TO_POD = Translate("dnat", single(POD), single(8080))
TO_NODE = Translate("dnat", single(NODE), single(8080))


@pytest.mark.parametrize(
    ("packets", "hooks"),
    [
        (from_outside(FRONTEND), ["prerouting", "forward", "postrouting"]),
        (from_outside(NODE), ["prerouting", "input"]),
        (from_node(FRONTEND), ["output", "postrouting"]),
        (from_node(NODE), ["output", "postrouting", "prerouting", "input"]),
    ],
    ids=["forwarded", "to the node", "from the node", "from the node to itself"],
)
def test_packets_traverse_hooks_in_kernel_order(packets: PacketClass, hooks: list[str]) -> None:
    rules = rule_set(*(base(hook, (TRACED_ACTION,)) for hook in HOOKS))
    assert hit_rules(rules, packets) == [f"filter {hook}: 0" for hook in hooks]


@pytest.mark.parametrize(
    ("packets", "to", "hooks"),
    [
        (from_outside(NODE), TO_POD, ["prerouting", "forward", "postrouting"]),
        (from_outside(FRONTEND), TO_NODE, ["prerouting", "input"]),
        (from_node(NODE), TO_POD, ["output", "postrouting"]),
        (from_node(FRONTEND), TO_NODE, ["output", "postrouting", "prerouting", "input"]),
    ],
)
def test_dnat_decides_the_later_hooks(packets: PacketClass, to: Translate, hooks: list[str]) -> None:
    nat = (base("prerouting", (to,), kind="nat"), base("output", (to,), kind="nat"))
    rules = rule_set(*nat, *(base(hook, (TRACED_ACTION,)) for hook in HOOKS))
    assert [met for met in hit_rules(rules, packets) if met.startswith("filter")] == [
        f"filter {hook}: 0" for hook in hooks
    ]


def test_base_chains_are_ordered_by_priority_then_by_position() -> None:
    chains = [
        base("forward", (TRACED_ACTION,), name=name, priority=priority)
        for name, priority in (("late", 10), ("first", 0), ("second", 0), ("early", -10))
    ]
    assert hit_rules(rule_set(*chains), from_outside()) == ["early: 0", "first: 0", "second: 0", "late: 0"]


@pytest.mark.parametrize("priority", [-300, -100, 0, 300])
def test_nat_chains_run_at_the_priority_of_nat(priority: int) -> None:
    """nf_nat_core.c registers one function at -100 (destination) and one at 100 (source), which call all nat chains."""
    chains = (
        base("prerouting", (TRACED_ACTION,), name="before", priority=-101),
        base("prerouting", (TRACED_ACTION,), name="after", priority=-99),
        base("prerouting", (TO_POD,), name="nat", kind="nat", priority=priority),
    )
    assert hit_rules(rule_set(*chains), from_outside()) == ["before: 0", "nat: 0", "after: 0"]


@pytest.mark.parametrize(
    ("packets", "hook", "name", "field"),
    [
        (from_outside(), "prerouting", "eth0", Field.INPUT),
        (from_outside(), "prerouting", "", Field.OUTPUT),
        (from_outside(NODE), "input", "eth0", Field.INPUT),
        (from_outside(NODE), "input", "", Field.OUTPUT),
        (from_outside(), "forward", "eth0", Field.INPUT),
        (from_outside(), "forward", "eth0", Field.OUTPUT),
        (from_outside(), "postrouting", "eth0", Field.INPUT),
        (from_outside(), "postrouting", "eth0", Field.OUTPUT),
        (from_node(), "output", "", Field.INPUT),
        (from_node(), "output", "eth0", Field.OUTPUT),
        (from_node(), "postrouting", "", Field.INPUT),
        (from_node(), "postrouting", "eth0", Field.OUTPUT),
        (from_node(NODE), "output", "lo", Field.OUTPUT),
        (from_node(NODE), "postrouting", "", Field.INPUT),
        (from_node(NODE), "postrouting", "lo", Field.OUTPUT),
        (from_node(NODE), "prerouting", "lo", Field.INPUT),
        (from_node(NODE), "prerouting", "", Field.OUTPUT),
        (from_node(NODE), "input", "lo", Field.INPUT),
        (from_node(NODE), "input", "", Field.OUTPUT),
    ],
)
def test_interfaces_at_each_hook(packets: PacketClass, hook: Hook, name: str, field: Field) -> None:
    for inverted in (False, True):
        test: Step = Interface(field, (name,), inverted)  # type: ignore[arg-type] # one of the two
        found = outcome(rule_set(base(hook, (test, DROP))), packets).disposition
        assert found is (Disposition.DELIVERED if inverted else Disposition.DROPPED)


def test_mark_is_kept_through_the_loopback_device() -> None:
    rules = rule_set(base("output", (SetMark(0, 4),)), base("input", (Marked(4, single(4)), DROP)))
    assert outcome(rules, from_node(NODE)) == Outcome(Disposition.DROPPED)
    assert outcome(rules, from_outside(NODE)).disposition is Disposition.DELIVERED
