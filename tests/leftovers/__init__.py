"""Taking over a node from kube-proxy: finding and removing its leftovers in each mode, with and without a kernel."""
