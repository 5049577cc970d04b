"""Compares two rule sets by the outcome of every packet class.

``packet_classes`` enumerates the classes, ``partition`` finds the parts of a class with different outcomes,
``comparison`` compares all classes, ``expected_differences`` lists the intended differences between kube-proxy's modes
and knft, and ``report`` groups the results. The engine calls the two sides left and right, because either can be any
rule set. Modules of ``expected_differences`` call them left (left) and knft (right).
"""
