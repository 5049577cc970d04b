"""kube-proxy's layouts, complete, as text for the program that loads them: what knft is measured against.

They are written after knft's notes on kube-proxy's behaviour. What kube-proxy does beside the one transaction (listing
chains, deleting stale ones a second later) is left out, in its favour.
"""
