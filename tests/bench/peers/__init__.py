"""kube-proxy's layouts as text for the programs that load them, to compare knft with.

They follow docs/behaviour. What kube-proxy does besides the one transaction is left out, in its favour: listing chains,
and deleting stale chains a second later.
"""
