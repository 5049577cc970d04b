"""Rules that went wrong, and rules that are written otherwise: what a comparison has to find, and what not.

``campaign`` makes mutants of captures of generated clusters and has them compared with what knft would do.
"""
