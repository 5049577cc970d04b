"""In which steps foreign objects are deleted: the kernel refuses to delete what another object refers to."""

from knft.nft.objects import NamedObject
from knft.sync.foreign_objects import ForeignObjects


def test_objects_are_deleted_after_those_that_refer_to_them() -> None:
    """Rules refer to all others, maps to chains and counters. Kinds that need a command in text have their own step."""
    chains = tuple(NamedObject("chain", name) for name in ("a", "b"))
    containers = (NamedObject("flowtable", "f"), NamedObject("map", "m"), NamedObject("set", "s"))
    counter, text = NamedObject("counter", "c"), NamedObject("synproxy", "y")
    base_chain = NamedObject("chain", "base")
    found = ForeignObjects(frozenset({base_chain}), frozenset({*chains, *containers, counter, text}))
    assert list(found.deletion_steps()) == [
        ((), ("a", "b")),
        (containers, ()),
        (chains, ()),
        ((counter,), ()),
        ((text,), ()),
    ]


def test_no_object_needs_no_step() -> None:
    assert list(ForeignObjects().deletion_steps()) == []
    assert list(ForeignObjects(unhooked_objects=frozenset({NamedObject("set", "s")})).deletion_steps()) == [
        ((NamedObject("set", "s"),), ())
    ]
