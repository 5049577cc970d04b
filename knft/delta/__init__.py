"""The smallest change from the programmed to the desired contents of a table.

No I/O. The package knows tables and elements, and neither Kubernetes nor the kernel.
"""
