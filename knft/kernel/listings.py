"""Whole tables as ``nft -j list table`` prints them: knft's own and kube-proxy's, never all there are."""

from knft.errors import KernelError, LibraryDiedError
from knft.kernel.libnftables import Commands
from knft.kernel.newer_sets import explained
from knft.nft.objects import Family

_NO_SUCH_TABLE = "No such file or directory"


def listed(library: Commands, family: Family, name: str) -> str | None:
    """Return a table as JSON, None where there is none; raise KernelError.

    ``library`` is to be a LibraryProcess: what another version of it has made may crash it.
    """
    try:
        return library.run(f"list table {family} {name}")
    except LibraryDiedError as error:
        raise explained(error) from error
    except KernelError as error:
        if _NO_SUCH_TABLE in error.detail:
            return None
        msg = f"listing the table {family} {name} failed: {error}"
        raise KernelError(msg, error.detail) from error
