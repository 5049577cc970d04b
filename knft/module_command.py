"""The command that runs a module of knft in a process of its own."""

import sys


def module_command(module: str, *arguments: str) -> list[str]:
    """Return the command; the process uses the user's packages and writes bytecode only if this one does."""
    flags = {"-s": sys.flags.no_user_site, "-B": sys.flags.dont_write_bytecode}
    return [sys.executable, "-P", *(flag for flag, is_set in flags.items() if is_set), "-m", module, *arguments]
