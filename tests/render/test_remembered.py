"""Blocks of sticky Service ports: a changed endpoint writes few rules, and clients are treated as without blocks."""

from collections.abc import Iterator
from fractions import Fraction
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from knft.nft.expressions import Chance, Concat, Goto, Jump, Return, Rule, Update
from knft.nft.expressions import RandomNumber as RandomIndex
from knft.nft.objects import Chain, Target
from knft.render.numbering import StickyPort, assign
from knft.render.picks import pick_chains
from knft.render.remembered import BLOCK_SIZE, StickyRules, is_block, remembered_chains

RULES = StickyRules("ip", "tcp", 7, 60)
CLUSTER, KNOWN, POOL = "sticky-7-cluster", "sticky-7-cluster-known", "pool-tcp-1"


def _target(index: int) -> Target:
    return (f"10.244.{index // 250}.{index % 250 + 1}", 8080)


def _chains(targets: dict[int, Target]) -> dict[str, Chain]:
    indexes = sorted(targets)
    known = remembered_chains(KNOWN, RULES, {index: targets[index] for index in indexes})
    return {chain.name: chain for chain in (*known, *pick_chains(CLUSTER, KNOWN, RULES, indexes, [POOL]))}


def _at(indexes: range | set[int]) -> dict[int, Target]:
    return {index: _target(index) for index in indexes}


def _followed(chain: str, chains: dict[str, Chain]) -> Iterator[Rule]:
    """Yield the rules of a chain, and those of the blocks to which it jumps instead of the jumps."""
    for rule in chains[chain].rules:
        match rule.statements:
            case (Jump(block),):
                yield from _followed(block, chains)
            case _:
                yield rule


def _written(before: dict[str, Chain], after: dict[str, Chain]) -> int:
    """Return how many rules the change writes."""
    return sum(len(chain.rules) for name, chain in after.items() if before.get(name) != chain)


@pytest.mark.parametrize("count", [1, BLOCK_SIZE], ids=str)
def test_port_with_few_endpoints_has_two_chains(count: int) -> None:
    chains = _chains(_at(range(100, 100 + count)))
    assert chains.keys() == {KNOWN, CLUSTER}
    assert len(chains[KNOWN].rules) == count


@pytest.mark.parametrize(
    "targets",
    [_at(range(BLOCK_SIZE + 1)), _at(set(range(0, 1000, 3))), _at(set(range(70)) | {5000})],
    ids=["one more", "gaps", "far apart"],
)
def test_blocks_have_the_rules_of_a_single_chain(targets: dict[int, Target]) -> None:
    """In the same order: a client that is remembered twice has the same endpoint."""
    chains = _chains(targets)
    assert list(_followed(KNOWN, chains)) == [RULES.remembered(index, target) for index, target in targets.items()]
    assert max(len(chain.rules) for name, chain in chains.items() if is_block(name)) <= BLOCK_SIZE
    assert {name for name in chains if is_block(name)} == set(chains[KNOWN].target_chains())


def test_unchanged_block_is_not_rendered_again() -> None:
    before, after = _chains(_at(range(200))), _chains(_at(range(201)))
    same = {name for name in before if is_block(name) and before[name] is after[name]}
    assert same == {f"{KNOWN}-{block}" for block in range(3)}


@pytest.mark.property
@given(count=st.integers(BLOCK_SIZE + 1, 1500), changes=st.integers(0, 200), rng=st.randoms(use_true_random=False))
def test_changed_endpoint_writes_rules_of_one_block(count: int, changes: int, rng: Random) -> None:
    """Also after many other changes, which leave gaps between indexes."""
    port, targets = StickyPort("WEB", "default/web:http", 7), [_target(number) for number in range(count)]
    port = assign(port, targets, 60, 0)
    for number in range(changes):
        targets[rng.randrange(count)] = _target(count + number)
        port = assign(port, targets, 60, number)
    before = _chains({index: target for target, index in port.indexes().items()})
    change = rng.choice(("remove", "add", "replace"))
    if change != "add":
        targets.pop(rng.randrange(count))
    if change != "remove":
        targets.append(_target(count + changes))
    port = assign(port, targets, 60, changes)
    after = _chains({index: target for target, index in port.indexes().items()})

    blocks = len(port.slots) // BLOCK_SIZE + 1
    # A removal and an addition each change a block of both kinds; then come the chains that lead to the blocks.
    assert 0 < _written(before, after) <= 4 * BLOCK_SIZE + 2 * blocks + 4


@pytest.mark.property
@given(st.sets(st.integers(0, 700), min_size=1, max_size=500))
def test_all_indexes_are_equally_likely(indexes: set[int]) -> None:
    chains = _chains(_at(indexes))
    assert dict(_probabilities(CLUSTER, chains)) == dict.fromkeys(indexes, Fraction(1, len(indexes)))


def _probabilities(name: str, chains: dict[str, Chain]) -> Iterator[tuple[int, Fraction]]:
    """Yield each index with the probability with which a new client is remembered with it."""
    left = Fraction(1)
    for rule in chains[name].rules:
        taken = left
        match rule.statements:
            case (Chance(cases, total), *_):
                taken *= Fraction(cases, total)
        match rule.statements[-1], rule.statements[-2:-1]:
            case ((Jump() | Return()), (Update(key=Concat((_, _, RandomIndex(modulus, offset)))),)):
                yield from ((index, taken / modulus) for index in range(offset, offset + modulus))
                left -= taken
            case Goto(block), _:
                yield from ((index, taken * share) for index, share in _probabilities(block, chains))
                left -= taken
            case Jump(block), () if block.endswith("-picks"):
                yield from _probabilities(block, chains)
    return


@pytest.mark.parametrize("gaps", [BLOCK_SIZE - 1, BLOCK_SIZE], ids=["no blocks", "blocks"])
def test_client_that_is_not_remembered_reaches_the_pool(gaps: int) -> None:
    """If the affinity set is full, every update ends its rule."""
    chains = _chains(_at(set(range(0, 2 * gaps + 1, 2))))
    assert (f"{CLUSTER}-picks" in chains) == (gaps >= BLOCK_SIZE)
    first, *_, last = chains[CLUSTER].rules
    assert (first, last) == (Rule((Jump(KNOWN),)), Rule((Jump(POOL),)))
    blocks = [chain for name, chain in chains.items() if name.startswith(f"{CLUSTER}-picks-")]
    assert all(isinstance(rule.statements[-1], Return) for block in blocks for rule in block.rules)


def test_picks_of_an_index_are_in_the_block_with_its_number() -> None:
    chains = _chains(_at(set(range(0, 4 * BLOCK_SIZE, 2))))
    picks = {name for name in chains if name.startswith(f"{CLUSTER}-picks-")}
    assert picks == {f"{CLUSTER}-picks-{number}" for number in range(4)}
