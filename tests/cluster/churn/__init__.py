"""``make churn``: up to 1 000 endpoint changes per second through a real API server.

Each change adds an address that has not been used before, so that it can be found in the kernel's notifications of
commits. The time from a writer's clock to the notification is the network programming latency, exact to the
microsecond. knft's own histogram of it is read too.
"""
