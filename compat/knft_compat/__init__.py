"""The rules of kube-proxy's iptables and IPVS modes, for comparison with knft's rules.

Input: a ``SyncInput``, which is computed by the same trackers and decisions that knft's own rules come from, and the
flags of the mode. Output: a ``SyncOutput`` of parts in the order in which kube-proxy runs the tools; each part is the
input of one tool, such as ``iptables-restore`` or ``ipset restore``. This package does no I/O, and knft's data path
never imports it.
"""
