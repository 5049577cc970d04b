"""Splits the Service ports of a large sync into batches, each of which is a transaction of its own."""

from collections.abc import Mapping

from knft.model.names import ServicePortName


def split_by_rules(rules: Mapping[ServicePortName, int], max_rules: int) -> list[frozenset[ServicePortName]]:
    """Return the Service ports in batches of at most ``max_rules`` rules, or of one Service port with more.

    ``rules`` are the numbers of rules that the Service ports write. Those with few rules are in the first batches, so
    that they need not wait for those with many.
    """
    batches: list[set[ServicePortName]] = [set()]
    count = 0
    for name in sorted(rules, key=lambda name: (rules[name], name)):
        if batches[-1] and rules[name] and count + rules[name] > max_rules:
            batches.append(set())
            count = 0
        batches[-1].add(name)
        count += rules[name]
    return [frozenset(batch) for batch in batches]
