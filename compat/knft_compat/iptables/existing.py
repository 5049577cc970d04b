"""What ``iptables-save`` printed on the node."""

from knft.errors import SourceError
from knft.takeover.saved import Saved, parse_saved


def read_existing(path: str, text: str) -> Saved:
    """Return the saved rules; raise SourceError, naming ``path``, where it is something else."""
    saved = parse_saved(text)
    if not saved.tables:
        msg = f"{path}: it is not what iptables-save prints (no table that ends with COMMIT)"
        raise SourceError(msg)
    return saved
