"""The sync loop: one Proxier for each family, and the Daemon that passes objects to them and starts syncs.

The package keeps the state between syncs, uses the kernel through ``table_interface``, and alone decides what happens
after an error.

Names for the contents of a table at different times:

desired     what the rules for the current objects require
programmed  what the last commit left, or what was read back
found       what a listing contains, before a Service port claims it (previous_contents, numbering)
last_known  what the kernel last accepted of a Service port that is quarantined
preserved   Service ports whose contents a sync does not remove
unclaimed   what was found and belongs to no Service port or record; also called orphans
"""
