"""At start, deletes foreign sets that would make libnftables crash from knft's own tables."""

import logging

from knft.errors import KernelError
from knft.families import Family
from knft.kernel.newer_sets import delete_newer_sets
from knft.nft.objects import NamedObject
from knft.render.layout import containers
from knft.render.names import TABLE
from knft.sync.foreign_objects import describe

log = logging.getLogger("knft")


def delete_foreign_newer_sets() -> None:
    """Delete the sets in knft's tables that a newer libnftables made and knft does not declare, and log their names.

    An older libnftables crashes when it reads them. If the kernel refuses, the probe of libnftables names the sets.
    """
    for family in Family:
        kept = [container.name for container in containers(family)]
        try:
            deleted = delete_newer_sets(family, TABLE, kept)
        except KernelError as error:
            log.debug("%s: %s", family.value, error)
            return
        if deleted:
            names = describe([NamedObject("set", name) for name in deleted])
            log.warning("%s: knft deleted foreign sets of a newer libnftables from its table: %s", family.value, names)
