"""Driving the stages: one Proxier a family, and the daemon that feeds them and says when.

It holds the state that the stages work on, asks the kernel through the port in ``ports``, and alone decides what
a failure leads to.
"""
