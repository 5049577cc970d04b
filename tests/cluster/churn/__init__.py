"""``make churn``: a thousand endpoints change each second, through a real API server, for a minute.

Each change brings an address that was never there before, so that it can be told in what the kernel says of its
commits. From a writer's clock to the kernel's word is the network programming latency, to the microsecond; knft's own
histogram of it is read too.
"""
