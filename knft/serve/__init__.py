"""What a node and its cluster ask of a Service proxy: health, metrics, status pages.

Observers of syncs keep what is asked for; HTTP servers answer. Nothing here changes a rule or waits for a sync.
"""
