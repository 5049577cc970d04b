"""``make test-trixie``: the tests that load rules, with Debian 13's libnftables and Python.

They run in a root folder of Debian 13, on this machine's kernel. The folder and its virtual environment are made
once, in ``${XDG_CACHE_HOME:-~/.cache}/knft/trixie``. A run writes to neither, nor to the checkout, but to
layers in memory over them, and has mount and PID namespaces of its own: it leaves nothing behind.
"""
