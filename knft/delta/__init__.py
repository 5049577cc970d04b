"""The difference between what is programmed and what is wanted, as the least that has to be sent.

Values in, values out; it knows tables and elements, and neither Kubernetes nor the kernel.
"""
