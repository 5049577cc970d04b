"""The intended differences between kube-proxy's modes and knft.

``catalogue`` lists them. Each is defined by edits of kube-proxy's or knft's rule set that remove the difference:
``iptables_edits`` and ``ipvs_edits`` for kube-proxy's modes, ``knft_edits`` for knft.
"""
