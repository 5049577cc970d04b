"""The batches of a large sync: bounded, complete, and one if there are few rules."""

from knft.sync.batches import split_by_rules
from tests.support.kube_objects import port_name

A, B, C, PLAIN = (port_name(service=name) for name in ("a", "b", "c", "plain"))


def test_few_rules_are_one_batch() -> None:
    assert split_by_rules({A: 4, B: 6, PLAIN: 0}, 10) == [frozenset({A, B, PLAIN})]


def test_nothing_is_one_empty_batch() -> None:
    """A sync of the node alone has a transaction too."""
    assert split_by_rules({}, 10) == [frozenset()]


def test_batch_ends_before_it_has_too_many_rules() -> None:
    assert split_by_rules({A: 5, B: 6, C: 6, PLAIN: 0}, 10) == [frozenset({PLAIN, A}), frozenset({B}), frozenset({C})]


def test_service_ports_with_few_rules_come_first() -> None:
    assert split_by_rules({A: 8, B: 4, C: 2}, 10) == [frozenset({C, B}), frozenset({A})]


def test_service_port_with_more_rules_is_a_batch_of_its_own() -> None:
    assert split_by_rules({A: 1, B: 20, C: 1}, 10) == [frozenset({A, C}), frozenset({B})]


def test_every_batch_is_as_large_as_possible() -> None:
    names = [port_name(service=f"web-{number}") for number in range(6)]
    batches = split_by_rules(dict.fromkeys(names, 2), 4)
    assert batches == [frozenset(names[0:2]), frozenset(names[2:4]), frozenset(names[4:6])]
