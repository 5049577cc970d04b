"""Shows what a comparison has found: ``text`` in a terminal, ``document`` to programs, ``page`` in a browser.

A Report in, a string out. It writes no file, reads no clock, and decides nothing about packets: what it shows is in the
report. Names of Services and texts of rules are others' words: no form lets them become markup or control a terminal.
The forms are apart so that one who asks for one loads no library of the others.
"""
