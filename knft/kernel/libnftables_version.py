"""Asks libnftables for its version."""

import msgspec

from knft.errors import KernelError
from knft.kernel.probe import require_privilege
from knft.kernel.process import WorkerProcess


class _Metainfo(msgspec.Struct):
    version: str = ""


class _Listing(msgspec.Struct):
    nftables: list[dict[str, _Metainfo]]


_LISTING = msgspec.json.Decoder(_Listing)


def libnftables_version() -> str:
    """Return the version that libnftables itself reports; raise KnftError if it cannot be loaded or used.

    The library has no other function for its version, and even an empty listing needs CAP_NET_ADMIN.
    """
    require_privilege()
    with WorkerProcess() as library:
        # Of a family that few programs use, to get a short answer; its first object has the version.
        listing = library.run("list tables arp", terse=True)
    try:
        return _LISTING.decode(listing).nftables[0]["metainfo"].version
    except (msgspec.DecodeError, LookupError) as error:
        msg = f"libnftables reports no version: {error}"
        raise KernelError(msg) from error
