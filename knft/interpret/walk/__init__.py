"""Follows classes of packets through a rule set: every class is split where a rule tells its packets apart.

``walker.Walker`` is made once for a rule set and asked for the paths of packets. It never samples, and decides each
class exactly: chances are fractions.
"""
