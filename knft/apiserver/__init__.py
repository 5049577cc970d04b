"""The API server: the only home of the kubernetes package.

It lists and watches what knft follows, decodes bytes straight into the structs of ``knft.model.objects``, and writes
events. It knows nothing of rules, and a cluster that cannot be reached never ends a process that has served before.
"""
