"""Change tracking for one family: which Service ports differ since the last sync (docs/behaviour/tracking.md).

Objects arrive one at a time and accumulate; a sync drains the accumulated changes. No I/O, no logging, no clock, no
nftables. Callers serialise the calls to a tracker.
"""
