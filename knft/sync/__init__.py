"""The sync loop: one Proxier for each family, and the Daemon that passes objects to them and starts syncs.

The package keeps the state between syncs, uses the kernel through ``table_interface``, and alone decides what happens
after an error.
"""
