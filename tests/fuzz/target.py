"""What is fuzzed: bytes in, and every promise about them held to; what comes out is an AssertionError or nothing."""

import json
import logging
from collections.abc import Iterable
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
from knft.sync.assemble import recording_daemon
from tests.support.kernel_harness import check_schema

CONFIG = Config("node-1", cluster_cidrs=("10.244.0.0/16", "fd00:10:244::/48"), nodeport_addresses=("0.0.0.0/0",))
LONGEST_SENTENCE = 2000
_LOG = logging.getLogger("knft")


def _is_error(record: logging.LogRecord) -> bool:
    return record.levelno >= logging.ERROR


def hold(data: bytes) -> None:
    """Decode, track, plan and render; what is refused is refused with one line."""
    _LOG.addFilter(_is_error)  # Of bad input much is said, and nothing is wrong with that here.
    try:
        _hold(data)
    finally:
        _LOG.removeFilter(_is_error)


def _hold(data: bytes) -> None:
    try:
        decoded = decode(data)
    except SourceError as error:
        _check_sentences([str(error)])
        return
    _check_sentences([*decoded.problems, *(f"{kind}" for kind, _ in decoded.skipped)])
    assert len(decoded.objects) == len(decoded.locations)
    if decoded.objects:
        _serve(decoded)


def _check_sentences(sentences: list[str]) -> None:
    for sentence in sentences:
        assert sentence
        assert sentence.isprintable(), sentence
        assert len(sentence) < LONGEST_SENTENCE, sentence


def _serve(decoded: DecodedManifest) -> None:
    """Serve the objects, then nothing, then the objects again: the trackers must forget everything."""
    catalogue = Catalogue()
    changes = catalogue.put("a", decoded)
    assert catalogue.put("b", decoded) == []
    _check_sentences([str(conflict) for conflict in catalogue.conflicts("a")])
    assert catalogue.remove("b") == []
    daemon, recorders = recording_daemon(CONFIG)
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
    daemon.handle(catalogue.put("a", decoded))
    assert daemon.sync()
    again = {family: recorders[family].transactions[-1] for family in Family}
    for family, elements in removed.items():
        # Sticky ports start afresh: their numbers stay, and their indexes are others.
        assert {name: keys for name, keys in elements.items() if not name.startswith("sticky")} == {
            name: set(added) for name, added in again[family].added.items() if not name.startswith("sticky")
        }


def _removed(transactions: Iterable[Transaction]) -> dict[str, set[Key]]:
    """Return all that is removed by one transaction after the other, by container."""
    return {name: set(keys) for sent in transactions for name, keys in sent.removed.items()}


def _check_text(text: str) -> None:
    assert text.isascii()
    # A comment never ends early, and no quote is left open.
    assert all(line.count('"') % 2 == 0 for line in text.splitlines())


def _check_commands(document: bytes) -> None:
    for command in json.loads(document)["nftables"]:
        _check_command(json.dumps(command))


@lru_cache(maxsize=1 << 14)
def _check_command(command: str) -> None:
    """Hold one command against the schema; nearly all are those of every first sync."""
    check_schema(f'{{"nftables": [{command}]}}'.encode())
