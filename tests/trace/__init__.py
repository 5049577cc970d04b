"""``knft trace``: what is said of packets, on rules that nobody has loaded and on those of a node."""
