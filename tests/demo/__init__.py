"""``make demo``: knft runs on a small node made of network namespaces, and shows what it does.

Nothing is left behind: only this process holds the namespaces, and knft ends with it.
"""
