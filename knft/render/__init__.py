"""Renders ServicePlans as chains and elements of knft's table.

The package translates the values of ``model`` into those of ``nft``. ``layout`` renders the parts that do not depend on
Services, ``pools`` the chains that Services share, ``fragment`` the elements of one Service port with ``frontends``,
and ``sticky`` the chains of one with session affinity. ``order`` and ``numbering`` keep the indexes of endpoints and
the numbers of sticky ports from one sync to the next. The package does not log, reads no clock and has no state: the
previous order of endpoints is an argument.
"""
