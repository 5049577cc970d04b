"""Change tracking: what differs since the last sync, for one family.

Objects come in one at a time and accumulate; a sync checks the accumulated changes out (behaviour.md A).
Nothing here performs I/O, logs, reads a clock, or knows nftables. Each tracker has one owner, who serialises calls.
"""
