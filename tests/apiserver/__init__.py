"""Tests of the API server's client, and of ``knft run``, against a fake API server that fails on request."""
