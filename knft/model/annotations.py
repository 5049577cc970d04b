"""The annotations that knft reads.

To add one to Services, add a field and its values to ``SERVICE_CHOICES``: ``source.validate`` then warns of other
values and removes them, so that code that reads the field meets only values of ``SERVICE_CHOICES`` and None.
"""

from collections.abc import Iterator, Mapping

from msgspec import Struct, field, structs


class Annotations(Struct, frozen=True, gc=False):
    """The annotations of an EndpointSlice or a Service, as written.

    ``trigger_time`` tells when the change of an EndpointSlice was triggered. ``drain`` is a Service's
    (docs/behaviour/draining.md), and so is ``load_balancing`` (docs/behaviour/load-balancing.md).
    """

    trigger_time: str | None = field(name="endpoints.kubernetes.io/last-change-trigger-time", default=None)
    drain: str | None = field(name="knft.dev/drain", default=None)
    load_balancing: str | None = field(name="knft.dev/load-balancing", default=None)


DRAIN_KEEP, DRAIN_RESET = "keep", "reset"
RANDOM, MAGLEV, SOURCE_HASH = "random", "maglev", "source-hash"
SERVICE_CHOICES: Mapping[str, tuple[str, ...]] = {
    "drain": (DRAIN_KEEP, DRAIN_RESET),
    "load_balancing": (RANDOM, MAGLEV, SOURCE_HASH),
}
"""The values of each annotation of Services, by field; the first is the default."""

_NAMES = {each.name: each.encode_name for each in structs.fields(Annotations)}


class UnknownChoice(Struct, frozen=True):
    """An annotation of a Service whose value is none of ``allowed``; ``field`` is that of ``Annotations``."""

    field: str
    annotation: str
    value: str
    allowed: tuple[str, ...]


def unknown_choices(annotations: Annotations) -> Iterator[UnknownChoice]:
    """Yield the annotations of a Service that have an unknown value."""
    for name, allowed in SERVICE_CHOICES.items():
        value = getattr(annotations, name)
        if value is not None and value not in allowed:
            yield UnknownChoice(name, _NAMES[name], value, allowed)
