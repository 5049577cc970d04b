"""``make test-trixie``: the tests that load rules, with Debian 13's libnftables and Python.

Then some tests run with Debian's own Python packages, in the root directory in which ``deploy.packages`` builds.

They run in a root directory of Debian 13, on this machine's kernel. The directory and its virtual environment are made
once, in ``${XDG_CACHE_HOME:-~/.cache}/knft/trixie``. A run has its own mount and PID namespaces, and writes only to
overlays in memory, so it changes neither them nor the checkout.
"""
