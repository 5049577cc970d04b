"""Rendering: how a ServicePlan becomes chains and elements of the table. The only place that knows both vocabularies.

``layout`` is what no Service changes, ``pools`` the chains that Services share, ``fragment`` one Service port's share.
Nothing here performs I/O, logs, reads a clock or remembers: the previous order of endpoints is an argument.
"""
