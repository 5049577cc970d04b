"""Taking over a node from kube-proxy: leftovers of every mode, on a real kernel and on paper."""
