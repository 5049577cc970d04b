"""``make test-parity``: knft beside the real kube-proxy, in clusters that a seed draws and changes.

Three nodes have the same addresses, pods and clients, each in namespaces of its own, and watch one API server:
kube-proxy runs on one in mode nftables and on one in mode iptables, knft on the third. After each change of the cluster
the test compares packets, rules, metrics, health checks and conntrack entries.

``random_cluster`` draws clusters, ``nodes`` runs the proxies, ``compare_*`` compare, ``seed_run`` runs one seed,
``shrink`` looks for the smallest cluster that still differs, ``faults`` breaks knft deliberately.
"""
