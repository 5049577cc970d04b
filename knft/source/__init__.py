"""Where objects come from: decoded once, at the door, and checked there.

What cannot be meant is reported, with file, object and field, and is absent further in. Nothing here tracks, decides or
knows nftables.
"""
