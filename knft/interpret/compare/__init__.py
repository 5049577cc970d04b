"""Compares two rule sets by the outcome of every packet class.

``packet_classes`` enumerates the classes, ``partition`` finds the parts of a class with different outcomes,
``comparison`` compares all classes, ``expected_differences`` lists the intended differences between kube-proxy's modes
and knft, and ``report`` groups the results. The engine calls the two sides left and right, because either can be any
rule set. Modules of ``expected_differences`` call them kube_proxy (left) and knft (right).

Terms, from large to small:

destination class    destination addresses that no rule tells apart
similar destination  a class whose result another destination class shares, because no rule that decided it differs
packet class         packets of one origin and protocol to a destination class; its other fields are sets of values
client               a packet class is compared without affinity entries, and again for each client that has some
path                 the rules that some packets of a class hit in one rule set, their share, and their outcome
piece                packets of a class that have the same outcomes within each side
difference group     differences with the same cause and Service in a report
"""
