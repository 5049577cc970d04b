"""Renders ServicePlans as chains and elements of knft's table.

Of the packages that perform no I/O, only this one uses both the Kubernetes and the nftables vocabulary. ``layout``
renders the parts that do not depend on Services, ``pools`` the chains that Services share, and ``fragment`` the
elements of one Service port. The package does not log, reads no clock and has no state: the previous order of endpoints
is an argument.
"""
