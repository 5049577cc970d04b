"""A node changes from the real kube-proxy to knft and back, in each mode and order, while clients connect.

``python -m tests.parity.migration`` (``make test-migration``) starts an API server and one node. New connections
are made all the time, through cluster IPs, NodePorts and load balancer IPs, over both families, TCP and UDP, with and
without session affinity. Others stay open and exchange data. The endpoints of one Service are replaced at each step.
"""
