"""``knft diff --live`` and ``knft trace`` on the rules of a machine: network namespaces with the real programs."""
