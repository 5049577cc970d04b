"""``make test-packages``: knft's packages, built and then installed in clean root directories of Debian 12 and 13.

The root directories are made once, in ``${XDG_CACHE_HOME:-~/.cache}/knft/packages`` (``deploy.roots``).
"""
