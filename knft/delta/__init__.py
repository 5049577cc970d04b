"""The smallest change from the programmed to the desired contents of a table.

No I/O. The programmed contents are those that the last commit left in the kernel. The package handles tables, chains
and elements; it has no knowledge of Kubernetes.
"""
