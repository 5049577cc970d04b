"""``make demo``: runs knft in a small cluster made of network namespaces, and prints its syncs and connections.

The namespaces and knft end with this process.
"""
