"""A sync, and a cleanup, of the iptables mode."""

from knft_compat.cluster import Cluster
from knft_compat.iptables.settings import Settings
from knft_compat.page import Page


def sync(cluster: Cluster, settings: Settings) -> Page:
    """Return what a sync hands to the kernel."""
    raise NotImplementedError


def cleanup(cluster: Cluster, settings: Settings) -> Page:
    """Return what removes the mode's leftovers."""
    raise NotImplementedError
