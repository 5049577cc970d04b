"""Rule sets with parts of them changed; what stays is shared with the original."""

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from knft.interpret.rules import Action, Chain, Collection, Element, Rule, RuleSet, Step, Test, Verdict


def edit_chain(rules: RuleSet, name: str, edit: Callable[[Rule], Iterable[Rule]]) -> RuleSet:
    """Return a rule set in which each rule of a chain is replaced by what ``edit`` makes of it.

    A chain that has been ``renamed`` is meant too, by its name of before.
    """
    there = [chain for key, chain in rules.chains.items() if key == name or key.endswith(f" {name}")]
    if not there:
        return rules
    edited = {
        chain.name: Chain(chain.name, tuple(made for rule in chain.rules for made in edit(rule))) for chain in there
    }
    return replace(rules, chains={**rules.chains, **edited})


def without_rules(rules: RuleSet, name: str, is_meant: Callable[[Rule], bool]) -> RuleSet:
    """Return a rule set without some rules of a chain."""
    return edit_chain(rules, name, lambda rule: () if is_meant(rule) else (rule,))


def with_tests(rule: Rule, *tests: Test) -> Rule:
    """Return a rule that is met by packets alone that pass some more tests."""
    return replace(rule, steps=(*tests, *rule.steps))


def only_actions(rule: Rule) -> tuple[Step, ...]:
    """Return what a rule does, without its tests."""
    return tuple(step for step in rule.steps if isinstance(step, Action))


def with_elements(rules: RuleSet, name: str, more: Iterable[Element]) -> RuleSet:
    """Return a rule set with more elements in a collection; those that are there already change nothing."""
    collection = rules.collections.get(name)
    if collection is None:
        return rules
    there = {element.key for element in collection.elements}
    added = {element.key: element for element in more if element.key not in there}
    extended = replace(collection, elements=(*collection.elements, *added.values()))
    return replace(rules, collections={**rules.collections, name: extended})


def with_collection(rules: RuleSet, collection: Collection) -> RuleSet:
    """Return a rule set with a collection more, or with another of that name."""
    return replace(rules, collections={**rules.collections, collection.name: collection})


def with_chain(rules: RuleSet, chain: Chain) -> RuleSet:
    """Return a rule set with a chain more, or with another of that name."""
    return replace(rules, chains={**rules.chains, chain.name: chain})


def with_chain_prefix(rules: RuleSet, before: str) -> RuleSet:
    """Return a rule set whose chains have a word in front of their names, so that it can be joined with its like."""

    def name(chain: str) -> str:
        return f"{before} {chain}"

    def edited(rule: Rule) -> Rule:
        return replace(rule, steps=tuple(_leading(step, name) for step in rule.steps))

    return replace(
        rules,
        base_chains=tuple(replace(base, chain=name(base.chain)) for base in rules.base_chains),
        chains={name(key): Chain(name(key), tuple(map(edited, chain.rules))) for key, chain in rules.chains.items()},
    )


def _leading(step: Step, name: Callable[[str], str]) -> Step:
    return replace(step, chain=name(step.chain)) if isinstance(step, Verdict) and step.chain else step


def join_rule_sets(one: RuleSet, other: RuleSet) -> RuleSet:
    """Return both at once; names of chains and collections are told apart by their tables."""
    return replace(
        one,
        base_chains=(*one.base_chains, *other.base_chains),
        chains={**one.chains, **other.chains},
        collections={**one.collections, **other.collections},
        servers=(*one.servers, *other.servers),
        ipvs_addresses=(*one.ipvs_addresses, *other.ipvs_addresses),
    )
