"""Tests of knft.serve over real sockets, with rules in a real kernel and a fake clock."""
