"""A small Kubernetes-like node, made of network namespaces that live and die with this process.

``topology`` is the place to start: ``with Lab() as lab`` builds the node under test, its pods, another node with its
pods and a client outside the cluster. ``responders`` answers in these hosts, ``traffic`` dials from them, and
``outcomes`` says what came of it.

It must never touch a namespace that it did not make, send a packet out of its own namespaces, name a path outside of
/proc, or need a program other than python. It holds namespaces by file descriptor alone, so that the kernel removes
everything when the process ends, also when it is killed. It knows nothing of knft.
"""
