"""kube-proxy's layouts as text for the programs that load them, to compare knft with.

They follow docs/behaviour. Only the transaction is measured, which favours kube-proxy: it also lists chains, and
deletes stale chains a second later.
"""
