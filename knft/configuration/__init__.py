"""kube-proxy's own configuration, taken as it stands: a KubeProxyConfiguration or its flags, and what knft makes of it.

Text and flags come in, ``Settings`` come out. It opens no socket and touches nothing of the machine.
"""
