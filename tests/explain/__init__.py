"""``knft explain``: lookup of WHAT, endpoints, formats. ``tests/packets/test_explanations.py`` sends packets."""
