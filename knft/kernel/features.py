"""What the kernel has in it now, found out without making it load anything."""

from pathlib import Path

_SYMBOLS = Path("/proc/kallsyms")
_MODULE = Path("/sys/module/nf_tables")
_CHUNK = 1 << 20


def has_nf_tables(module: Path = _MODULE, symbols: Path = _SYMBOLS) -> bool:
    """Tell whether nf_tables is there, loaded or built in; True where that cannot be seen.

    Any question over netlink would load it.
    """
    if module.exists():
        return True
    wanted, rest = b" nft_do_chain", b""
    try:
        with symbols.open("rb") as file:
            while chunk := file.read(_CHUNK):
                if wanted in rest + chunk:
                    return True
                rest = chunk[-len(wanted) :]
    except OSError:
        return True
    return False
