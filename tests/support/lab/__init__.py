"""A small Kubernetes-like cluster, made of network namespaces that are removed when this process ends.

Start with ``topology``: ``with Lab() as lab`` builds the node under test, its pods, another node with its pods, and a
client outside the cluster. ``responders`` runs servers on these hosts, ``traffic`` connects from them, and ``outcomes``
has the possible results.

The lab touches no namespace that it did not make, sends no packet out of its own namespaces, uses no path outside
/proc, and needs no program other than Python. Only file descriptors hold the namespaces, so the kernel removes
everything when the process ends, also when it is killed. The lab does not depend on knft.
"""
