"""The fuzz target: processes bytes as a manifest file and raises an AssertionError if a check fails."""

import json
import logging
from collections.abc import Iterable, Mapping
from functools import lru_cache

from knft.config import Config
from knft.errors import SourceError
from knft.families import Family
from knft.nft.codec.tables import table_text, transaction_json
from knft.nft.objects import Key
from knft.nft.transaction import Transaction
from knft.render.layout import whole_table, without_unreachable_chains
from knft.source.catalogue import Catalogue
from knft.source.decode import DecodedManifest, decode
from knft.sync.assemble import rendering_daemon
from tests.support.kernel_harness import check_schema

CONFIG = Config("node-1", cluster_cidrs=("10.244.0.0/16", "fd00:10:244::/48"), nodeport_addresses=("0.0.0.0/0",))
MAX_MESSAGE_LENGTH = 2000
_LOG = logging.getLogger("knft")


def _is_error(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


def check_input(data: bytes) -> None:
    """Decode, track, plan and render ``data``; check that every message about invalid input is one short line."""
    _LOG.addFilter(_is_error)  # Invalid input causes many warnings.
    try:
        _check_pipeline(data)
    finally:
        _LOG.removeFilter(_is_error)


def _check_pipeline(data: bytes) -> None:
    try:
        decoded = decode(data)
    except SourceError as error:
        _check_messages([str(error)])
        return
    _check_messages([*decoded.problems, *(f"{kind}" for kind, _ in decoded.skipped)])
    assert len(decoded.objects) == len(decoded.locations)
    if decoded.objects:
        _check_syncs(decoded)


def _check_messages(messages: list[str]) -> None:
    for message in messages:
        assert message
        assert message.isprintable(), message
        assert len(message) < MAX_MESSAGE_LENGTH, message


def _check_syncs(decoded: DecodedManifest) -> None:
    """Add all objects, remove them, and add them again, which must send the same elements."""
    catalogue = Catalogue()
    changes = catalogue.put("a", decoded)
    assert catalogue.put("b", decoded) == []
    _check_messages([str(conflict) for conflict in catalogue.conflicts("a")])
    assert catalogue.remove("b") == []
    daemon, recorders = rendering_daemon(CONFIG)
    daemon.handle(changes)
    assert daemon.sync()
    first = {family: recorders[family].first_sync() for family in Family}
    for declared, transaction in first.values():
        _check_commands(transaction_json(transaction))
        _check_text(table_text(without_unreachable_chains(whole_table(declared, transaction))))
    daemon.handle(catalogue.remove("a"))
    assert daemon.sync()
    removed = {family: _removed(recorders[family].transactions[1:]) for family in Family}
    for family, (_, transaction) in first.items():
        for sent in recorders[family].transactions[1:]:
            _check_commands(transaction_json(sent))
        added = {(name, key) for name, elements in transaction.added.items() for key in elements}
        assert added >= {(name, key) for name, keys in removed[family].items() for key in keys}
    sent_before = {family: len(recorders[family].transactions) for family in Family}
    daemon.handle(catalogue.put("a", decoded))
    assert daemon.sync()
    added_again = {family: _added(recorders[family].transactions[sent_before[family] :]) for family in Family}
    for family, elements in removed.items():
        # The indexes of sticky Service ports' endpoints differ after the second addition.
        assert {name: keys for name, keys in elements.items() if not name.startswith("sticky")} == {
            name: keys for name, keys in added_again[family].items() if not name.startswith("sticky")
        }


def _removed(transactions: Iterable[Transaction]) -> dict[str, set[Key]]:
    """Return the keys that transactions remove, by container."""
    return _keys_by_container(sent.removed for sent in transactions)


def _added(transactions: Iterable[Transaction]) -> dict[str, set[Key]]:
    """Return the keys that transactions add, by container."""
    return _keys_by_container(sent.added for sent in transactions)


def _keys_by_container(changes: Iterable[Mapping[str, Iterable[Key]]]) -> dict[str, set[Key]]:
    """Merge the keys of all transactions: a sync sends many elements in several."""
    merged: dict[str, set[Key]] = {}
    for change in changes:
        for name, keys in change.items():
            merged.setdefault(name, set()).update(keys)
    return merged


def _check_text(text: str) -> None:
    assert text.isascii()
    # A comment must not contain quotes.
    assert all(line.count('"') % 2 == 0 for line in text.splitlines())


def _check_commands(document: bytes) -> None:
    for command in json.loads(document)["nftables"]:
        _check_command(json.dumps(command))


@lru_cache(maxsize=1 << 14)
def _check_command(command: str) -> None:
    """Check one command against the schema. Most commands are the same in every first sync, hence the cache."""
    check_schema(f'{{"nftables": [{command}]}}'.encode())
