"""The chains of a sticky Service port that remember a new client with a random index, all equally likely.

The indexes have gaps where endpoints were removed; each run of indexes without a gap needs a rule:

    sticky-K-cluster          a rule for each of up to BLOCK_SIZE runs, which continues in sticky-K-cluster-known
    sticky-K-cluster-picks    with more runs: goes to one of the blocks at random
    sticky-K-cluster-picks-b  a rule for each run of the indexes of block b, which returns to sticky-K-cluster

If the affinity set is full, an update ends its rule, and the packet continues with the next rule.
"""

from collections.abc import Iterator, Sequence
from itertools import groupby

from knft.nft import expressions as nft
from knft.nft.objects import Chain
from knft.render import remembered
from knft.render.remembered import StickyRules


def pick_chains(
    name: str, known: str, rules: StickyRules, indexes: Sequence[int], fallbacks: Sequence[str]
) -> Iterator[Chain]:
    """Yield the chain ``name`` and its blocks, if any; ``indexes`` are sorted.

    Clients that are remembered continue in the chain ``known``, those that do not fit into the affinity set in
    ``fallbacks``.
    """
    to_known, runs = nft.Jump(known), _runs(indexes)
    if len(runs) <= remembered.BLOCK_SIZE:
        picks = tuple(nft.Rule((*pick, to_known)) for pick in _picks(rules, runs))
        blocks: list[Chain] = []
    else:
        by_block = groupby(indexes, key=remembered.block_of)
        members = {f"{name}-picks-{number}": tuple(block) for number, block in by_block}
        choices = zip(_chances([len(block) for block in members.values()]), members, strict=True)
        first = Chain(f"{name}-picks", tuple(nft.Rule((*chance, nft.Goto(block))) for chance, block in choices))
        blocks = [first, *(_block(block, rules, members[block]) for block in members)]
        picks = (nft.Rule((nft.Jump(first.name),)), nft.Rule((to_known,)))
    others = (nft.Rule((nft.Jump(chain),)) for chain in fallbacks)
    yield Chain(name, (nft.Rule((to_known,)), *picks, *others))
    yield from blocks


def _block(name: str, rules: StickyRules, indexes: Sequence[int]) -> Chain:
    return Chain(name, tuple(nft.Rule((*pick, nft.Return())) for pick in _picks(rules, _runs(indexes))))


def _picks(rules: StickyRules, runs: Sequence[range]) -> Iterator[tuple[nft.Statement, ...]]:
    """Yield the statements that remember a client with one of the indexes, for each run."""
    for chance, run in zip(_chances([len(run) for run in runs]), runs, strict=True):
        yield (*chance, rules.update(nft.RandomNumber(len(run), run.start)))


def _chances(sizes: Sequence[int]) -> Iterator[tuple[nft.Chance, ...]]:
    """Yield the condition of one rule for each size; the probability of each rule is proportional to its size."""
    remaining = sum(sizes)
    for size in sizes:
        yield (nft.Chance(size, remaining),) if size < remaining else ()
        remaining -= size


def _runs(indexes: Sequence[int]) -> list[range]:
    """Return sorted indexes as ranges."""
    runs: list[range] = []
    for index in indexes:
        if runs and runs[-1].stop == index:
            runs[-1] = range(runs[-1].start, index + 1)
        else:
            runs.append(range(index, index + 1))
    return runs
