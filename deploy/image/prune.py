"""Which files of packages and wheels an image does not have."""

import re

_PYTHON = r"usr/lib/python3\.\d+"
_PATTERNS = (
    r"usr/share/(applications|binfmts|bug|doc-base|gcc|info|lintian|locale|man|menu|nftables|pixmaps|python|terminfo)(/|$)",
    # Of the documentation only the licences.
    r"usr/share/doc/[^/]+/(?!copyright$)",
    r"usr/lib/(binfmt\.d|systemd|tmpfiles\.d|valgrind)(/|$)",
    r"usr/lib/\w+-linux-gnu/(audit|engines-3|gconv|perl-base|security)(/|$)",
    r"etc/(cron\.|default|init\.d|ld\.so\.conf\.d|logrotate\.d|nftables\.conf|python|terminfo)",
    # Programs of the C library and of Python's package.
    r"usr/s?bin/(?!knft$|nft$|python3|ip6?tables|xtables|ipset$|ipvsadm$)",
    # Modules that nothing imports, and those whose libraries are not in the image (variant.py).
    rf"{_PYTHON}/(curses|dbm|distutils|ensurepip|idlelib|lib2to3|pydoc_data|sqlite3|test|tkinter|turtledemo|venv)(/|$)",
    rf"{_PYTHON}/(crypt|sitecustomize)\.py$",
    rf"{_PYTHON}/lib-dynload/(_?crypt|_curses|_curses_panel|_dbm|_sqlite3|_test\w*|_uuid|nis|readline)\.",
    # Where a wheel was when it was installed.
    r".*\.dist-info/(direct_url\.json|REQUESTED)$",
)
_UNUSED = re.compile("|".join(_PATTERNS))
_ONLY = {"base-files": re.compile(r"usr/share/(common-licenses|doc/base-files)(/|$)|(usr/lib|etc)/os-release$")}
"""The files that the image has of a package, instead of all but the unused ones."""


def is_unused(name: str, package: str = "") -> bool:
    """Tell whether the image lacks a file or directory of a package; ``name`` is its path in the root directory."""
    only = _ONLY.get(package)
    return _UNUSED.match(name) is not None or (only is not None and only.match(name) is None)
