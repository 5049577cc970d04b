"""Lists whole tables as ``nft -j list table`` does: knft's own and kube-proxy's, never the whole ruleset.

The commands use it; KernelTable reads the table that a sync changes.
"""

from knft.errors import KernelError, LibraryDiedError
from knft.families import Family
from knft.kernel.command_runner import CommandRunner
from knft.kernel.newer_sets import library_death_error

_NO_SUCH_TABLE = "No such file or directory"


def list_table_json(library: CommandRunner, family: Family, name: str) -> str | None:
    """Return a table as JSON, or None if it does not exist; raise KernelError.

    Pass a WorkerProcess as ``library``: libnftables 1.0.6 crashes on sets made by a newer libnftables.
    """
    try:
        return library.run(f"list table {family.nft} {name}")
    except LibraryDiedError as error:
        raise library_death_error(error) from error
    except KernelError as error:
        if _NO_SUCH_TABLE in error.detail:
            return None
        msg = f"cannot list table {family.nft} {name}: {error}"
        raise KernelError(msg, error.detail) from error
