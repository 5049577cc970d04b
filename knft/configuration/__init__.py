"""Reads kube-proxy's configuration, a KubeProxyConfiguration file or flags, and turns it into knft's Settings.

It opens no sockets and does not change the machine.
"""
