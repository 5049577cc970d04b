"""Checks of a node before it changes from kube-proxy to knft: ``knft preflight``.

``machine`` reads this machine into Facts, ``cluster`` the objects of an API server. Each other module checks one
subject: facts in, findings out, without I/O. ``checks`` calls them all and computes the verdict.
"""
