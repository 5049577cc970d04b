"""Renders ServicePlans as chains and elements of knft's table.

The package translates the values of ``model`` into those of ``nft``. ``layout`` renders the parts that do not depend on
Services, ``pools`` the chains that Services share, ``fragment`` the elements of one Service port with ``frontends``,
and ``wide`` the chains of one with many frontends. ``affinity`` has the rules of session affinity. ``order`` and
``endpoint_ids`` keep the indexes and the IDs of endpoints from one sync to the next. The package does not log, reads no
clock and has no state: the previous order of endpoints is an argument.
"""
