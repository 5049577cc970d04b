"""Tests of the client of the API server, against a fake server that fails on demand."""
