"""MemoryDaemon: the daemon of ``knft run`` on tables in memory."""

from collections.abc import Iterable

from knft.config import Config
from knft.families import Family
from tests.support.memory_table import MemoryTable
from tests.support.readable_daemon import ReadableDaemon


class MemoryDaemon(ReadableDaemon):
    """Both families on tables in memory."""

    def __init__(self, config: Config, local_addresses: Iterable[str] = ()) -> None:
        self.tables = {family: MemoryTable(family) for family in Family}
        super().__init__(config, self.tables, local_addresses)
