"""Holds two rule sets against each other, by what becomes of every class of packets.

``classes`` says which classes there are, ``boxes`` finds the parts of a class that fare differently, ``comparison``
goes through all of them, ``intent`` knows which differences are meant.
"""
