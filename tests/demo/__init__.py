"""``make demo``: knft at work on a small node made of network namespaces, for people to watch.

It leaves nothing behind: namespaces are held by this process alone, and knft dies with it.
"""
