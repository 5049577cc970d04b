"""Chains that belong to one Service port: written if changed, emptied when they are unused, and deleted later."""

from knft.delta.diff import ContentsDiff
from knft.delta.programmed import MAX_RETRY_DELAY_SECONDS, EmptiedChain, ProgrammedContents
from knft.nft.expressions import Drop, Rule
from knft.nft.objects import Chain, Contents


def test_owned_chains_are_written_if_changed_and_emptied_without_owner() -> None:
    programmed: ProgrammedContents[str] = ProgrammedContents()
    old, new = Chain("wide-1-cluster"), Chain("wide-1-cluster", (Rule((Drop(),)),))
    kept, removed = Chain("wide-1-local"), Chain("wide-1-cluster-known-64")
    programmed.apply({"a": Contents({}, {}, set(), {chain.name: chain for chain in (old, kept, removed)})})
    changes = programmed.diff({"a": Contents({}, {}, set(), {chain.name: chain for chain in (new, kept)})})
    assert changes == ContentsDiff({}, {}, (new,), ("wide-1-cluster-known-64",))


def test_emptied_chain_waits_for_deletion_unless_written_again() -> None:
    programmed: ProgrammedContents[str] = ProgrammedContents()
    programmed.record_chain_changes(ContentsDiff({}, {}), ("a", "b", "c"), 5.0)
    programmed.record_chain_changes(ContentsDiff({}, {}, (Chain("b"),)), (), 6.0)
    programmed.record_deleted(["c"])
    assert programmed.emptied_chains == {"a": EmptiedChain(5.0)}


def test_refused_deletion_of_a_chain_backs_off() -> None:
    programmed: ProgrammedContents[str] = ProgrammedContents()
    programmed.record_chain_changes(ContentsDiff({}, {}), ("a",), 5.0)
    programmed.record_refused_deletions(["a", "b"], 6.1)
    assert programmed.emptied_chains == {"a": EmptiedChain(6.1, 2.0)}
    for _ in range(20):
        programmed.record_refused_deletions(["a"], 7.0)
    assert programmed.emptied_chains["a"].deletable_at == 7.0 + MAX_RETRY_DELAY_SECONDS
