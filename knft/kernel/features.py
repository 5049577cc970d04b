"""Checks what the running kernel has loaded, without making it load a module."""

from pathlib import Path

_SYMBOLS = Path("/proc/kallsyms")
_MODULE = Path("/sys/module/nf_tables")
_CHUNK = 1 << 20


def may_have_nf_tables(module: Path = _MODULE, symbols: Path = _SYMBOLS) -> bool:
    """Return False if nf_tables is neither loaded nor built in; True if it is, or if that cannot be determined.

    A netlink request would load the module.
    """
    if module.exists():
        return True
    symbol, rest = b" nft_do_chain", b""
    try:
        with symbols.open("rb") as file:
            while chunk := file.read(_CHUNK):
                if symbol in rest + chunk:
                    return True
                rest = chunk[-len(symbol) :]
    except OSError:
        return True
    return False
