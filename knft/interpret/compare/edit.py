"""Edits rule sets; the result shares unchanged parts with the original."""

from collections.abc import Callable, Iterable

from msgspec.structs import replace

from knft.interpret.rules import Action, Chain, Collection, Element, Rule, RuleSet, Step, Test, Verdict


def edit_chain(rules: RuleSet, name: str, edit: Callable[[Rule], Iterable[Rule]]) -> RuleSet:
    """Return a rule set in which each rule of a chain is replaced by the rules that ``edit`` returns for it.

    ``name`` also matches chains that ``with_chain_prefix`` has renamed.
    """
    chains = [chain for key, chain in rules.chains.items() if key == name or key.endswith(f" {name}")]
    if not chains:
        return rules
    edited = {
        chain.name: Chain(chain.name, tuple(new for rule in chain.rules for new in edit(rule))) for chain in chains
    }
    return replace(rules, chains={**rules.chains, **edited})


def without_rules(rules: RuleSet, name: str, is_removed: Callable[[Rule], bool]) -> RuleSet:
    """Return a rule set without the matching rules of a chain."""
    return edit_chain(rules, name, lambda rule: () if is_removed(rule) else (rule,))


def with_tests(rule: Rule, *tests: Test) -> Rule:
    """Return a rule with additional tests."""
    return replace(rule, steps=(*tests, *rule.steps))


def only_actions(rule: Rule) -> tuple[Step, ...]:
    """Return the actions of a rule, without its tests."""
    return tuple(step for step in rule.steps if isinstance(step, Action))


def with_elements(rules: RuleSet, name: str, more: Iterable[Element]) -> RuleSet:
    """Return a rule set with more elements in a collection; elements whose keys exist are skipped."""
    collection = rules.collections.get(name)
    if collection is None:
        return rules
    existing = {element.key for element in collection.elements}
    added = {element.key: element for element in more if element.key not in existing}
    extended = replace(collection, elements=(*collection.elements, *added.values()))
    return replace(rules, collections={**rules.collections, name: extended})


def with_collection(rules: RuleSet, collection: Collection) -> RuleSet:
    """Return a rule set with a collection added or replaced."""
    return replace(rules, collections={**rules.collections, collection.name: collection})


def with_chain(rules: RuleSet, chain: Chain) -> RuleSet:
    """Return a rule set with a chain added or replaced."""
    return replace(rules, chains={**rules.chains, chain.name: chain})


def with_chain_prefix(rules: RuleSet, prefix: str) -> RuleSet:
    """Return a rule set with a prefix for the names of its chains, so that it can be joined with a similar one."""

    def name(chain: str) -> str:
        return f"{prefix} {chain}"

    def edited(rule: Rule) -> Rule:
        return replace(rule, steps=tuple(_with_prefixed_target(step, name) for step in rule.steps))

    return replace(
        rules,
        base_chains=tuple(replace(base, chain=name(base.chain)) for base in rules.base_chains),
        chains={name(key): Chain(name(key), tuple(map(edited, chain.rules))) for key, chain in rules.chains.items()},
    )


def _with_prefixed_target(step: Step, name: Callable[[str], str]) -> Step:
    return replace(step, chain=name(step.chain)) if isinstance(step, Verdict) and step.chain else step


def join_rule_sets(one: RuleSet, other: RuleSet) -> RuleSet:
    """Return a rule set with the rules of both; the names of their chains and collections must be distinct."""
    return replace(
        one,
        base_chains=(*one.base_chains, *other.base_chains),
        chains={**one.chains, **other.chains},
        collections={**one.collections, **other.collections},
        servers=(*one.servers, *other.servers),
        ipvs_addresses=(*one.ipvs_addresses, *other.ipvs_addresses),
    )
