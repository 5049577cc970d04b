"""The client of the API server, against a small HTTP server that fails in every way that one can."""
