"""Encodes transactions as JSON and text, and declarations and whole tables as text."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from knft.nft.codec.elements import comment_text, element_text, elements_json, key_json
from knft.nft.codec.statements import statement_json, statement_text
from knft.nft.expressions import Rule
from knft.nft.objects import Chain, Container, Hook, Key, Table, Value
from knft.nft.transaction import Transaction

Json = dict[str, Any]

_PLAIN_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*+")


def transaction_commands(transaction: Transaction) -> str:
    """Return a transaction as input for libnftables: as text if it writes chains, otherwise as JSON.

    As text, a rule costs libnftables 1.0.6 half as much CPU and memory. Chains to empty or delete may be of another
    program, whose names could end a command.
    """
    chains = (*transaction.new_chains, *transaction.chains)
    if chains and all(map(_PLAIN_NAME.fullmatch, (*(chain.name for chain in chains), *transaction.deleted_chains))):
        return transaction_text(transaction)
    return transaction_json(transaction).decode()


def creation_commands(declared: Table, first: Transaction) -> str:
    """Return the commands, as text, that create a table with its containers and execute its first transaction."""
    return declarations_text(declared) + transaction_text(first)


def transaction_text(transaction: Transaction) -> str:
    """Return a transaction as nft text."""
    return "\n".join(_text_commands(transaction)) + "\n"


def _text_commands(transaction: Transaction) -> Iterator[str]:
    where = f"{transaction.family} {transaction.table}"
    yield from _chain_commands(where, (*transaction.new_chains, *transaction.chains))
    for name, keys in transaction.removed.items():
        yield f"delete element {where} {name} {_elements_text(dict.fromkeys(keys))}"
    for name, added in transaction.added.items():
        yield f"add element {where} {name} {_elements_text(added)}"
    for name, keys in transaction.deferred_removals.items():
        yield f"delete element {where} {name} {_elements_text(dict.fromkeys(keys))}"
    for name in transaction.deleted_chains:
        yield f"delete chain {where} {name}"


def _elements_text(elements: Mapping[Key, Value]) -> str:
    return "{\n" + ",\n".join(element_text(key, value) for key, value in elements.items()) + "\n}"


def _chain_commands(where: str, chains: tuple[Chain, ...]) -> Iterator[str]:
    """Yield the commands that create chains, and give chains that exist these rules instead of theirs."""
    for chain in chains:
        hook = f" {{ {_hook_text(chain.hook)} }}" if chain.hook is not None else ""
        yield f"add chain {where} {chain.name}{hook}"
    for chain in chains:
        yield f"flush chain {where} {chain.name}"
        for rule in chain.rules:
            yield f"add rule {where} {chain.name} {_rule_text(rule)}"


def transaction_json(transaction: Transaction, last_commands: Iterable[msgspec.Raw] = ()) -> bytes:
    """Return a transaction as the JSON document for libnftables, followed by other commands."""
    return msgspec.json.encode({"nftables": [*_commands(transaction), *last_commands]})


def _commands(transaction: Transaction) -> Iterator[Json]:
    where = {"family": transaction.family, "table": transaction.table}
    chains = (*transaction.new_chains, *transaction.chains)
    for chain in chains:
        yield {"add": {"chain": where | chain_json(chain)}}
    for chain in chains:
        yield {"flush": {"chain": {**where, "name": chain.name}}}
        for rule in chain.rules:
            yield {"add": {"rule": {**where, "chain": chain.name} | rule_json(rule)}}
    for name, keys in transaction.removed.items():
        elements = [key_json(key) for key in keys]
        yield {"delete": {"element": {**where, "name": name, "elem": elements}}}
    for name, added in transaction.added.items():
        yield {"add": {"element": {**where, "name": name, "elem": elements_json(added)}}}
    for name, keys in transaction.deferred_removals.items():
        yield {"delete": {"element": {**where, "name": name, "elem": [key_json(key) for key in keys]}}}
    for name in transaction.deleted_chains:
        yield {"delete": {"chain": {**where, "name": name}}}


def chain_json(chain: Chain) -> Json:
    """Return a chain as libnftables JSON, without family and table."""
    if chain.hook is None:
        return {"name": chain.name}
    hook = chain.hook
    return {
        "name": chain.name,
        "type": hook.type,
        "hook": hook.hook,
        "prio": hook.priority,
        "policy": "accept",
    }


def rule_json(rule: Rule) -> Json:
    """Return a rule as libnftables JSON, without family, table and chain."""
    written: Json = {"expr": [statement_json(statement) for statement in rule.statements]}
    return written | ({"comment": comment_text(rule.comment)} if rule.comment else {})


def declarations_text(table: Table) -> str:
    """Return the table and its containers without elements, as nft text. It has no effect until rules use it."""
    return "\n".join(_table_lines(table, chains=(), elements=False)) + "\n"


def table_text(table: Table) -> str:
    """Return a whole table as nft text for ``nft -f``."""
    return "\n".join(_table_lines(table, chains=table.chains, elements=True)) + "\n"


def _table_lines(table: Table, *, chains: tuple[Chain, ...], elements: bool) -> Iterator[str]:
    yield f"table {table.family} {table.name} {{"
    if table.owned:
        yield "\tflags owner,persist"
    if table.comment:
        yield f'\tcomment "{comment_text(table.comment)}"'
    for container in table.containers:
        yield ""
        yield from _container_lines(container, table.elements.get(container.name, {}) if elements else {})
    for chain in chains:
        yield ""
        yield from _chain_lines(chain)
    yield "}"


def _container_lines(container: Container, elements: Mapping[Key, Value]) -> Iterator[str]:
    yield f"\t{'map' if container.is_map else 'set'} {container.name} {{"
    data = f" : {container.data}" if container.is_map else ""
    yield f"\t\t{'typeof' if container.by_expression else 'type'} {container.key}{data}"
    if container.dynamic_size:
        yield f"\t\tsize {container.dynamic_size}"
        yield "\t\tflags dynamic,timeout"
    if container.interval:
        yield "\t\tflags interval"
    if container.has_counters:
        yield "\t\tcounter"
    if container.comment:
        yield f'\t\tcomment "{comment_text(container.comment)}"'
    if elements:
        yield "\t\telements = {"
        yield ",\n".join(f"\t\t\t{element_text(key, value)}" for key, value in elements.items())
        yield "\t\t}"
    yield "\t}"


def _chain_lines(chain: Chain) -> Iterator[str]:
    yield f"\tchain {chain.name} {{"
    if chain.hook is not None:
        yield f"\t\t{_hook_text(chain.hook)}"
    for rule in chain.rules:
        yield f"\t\t{_rule_text(rule)}"
    yield "\t}"


def _hook_text(hook: Hook) -> str:
    return f"type {hook.type} hook {hook.hook} priority {hook.priority}; policy accept;"


def _rule_text(rule: Rule) -> str:
    comment = f' comment "{comment_text(rule.comment)}"' if rule.comment else ""
    return f"{' '.join(map(statement_text, rule.statements))}{comment}"
