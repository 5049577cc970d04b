"""Renders ServicePlans as chains and elements of knft's table.

Of all stages, only this package uses both the Kubernetes and the nftables vocabulary. ``layout`` renders the parts that
do not depend on Services, ``pools`` the chains that Services share, and ``fragment`` the elements of one Service port.
The package performs no I/O, does not log, reads no clock and has no state: the previous order of endpoints is an
argument.
"""
