"""Kubernetes events that knft reports, about a Node or a Service."""

from msgspec import Struct


class ObjectReference(Struct, frozen=True, rename="camel"):
    """The object that an event is about, as in the API: a Node has no namespace."""

    kind: str
    name: str
    namespace: str = ""
    uid: str = ""
    api_version: str = "v1"


class Event(Struct, frozen=True):
    """An event; ``reason`` and ``action`` are fixed words, ``note`` is text for people and may quote other programs."""

    regarding: ObjectReference
    reason: str
    action: str
    note: str = ""
    warning: bool = True
