"""Settings of the nftables mode."""

from msgspec import Struct


class Settings(Struct, frozen=True):
    """Settings of the nftables mode: it has none besides those that all modes share."""
