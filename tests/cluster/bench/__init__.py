"""``make bench-cluster``: knft and the real kube-proxy in turn on one node, with objects from a real API server.

One API server serves all proxies; it is filled once for each size. Everything is measured from outside, in the same way
for each proxy: CPU time and memory by ``/proc`` of all its processes, the start by connections through its rules, a
change by the kernel's notification of the commit that adds the endpoint's address. The benchmark only reports. The
modules ``sizes``, ``endpoints``, ``stored_objects``, ``figures`` and ``table`` are pure.
"""
