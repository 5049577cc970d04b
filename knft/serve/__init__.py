"""Serves health checks, metrics and status pages over HTTP, and reports events.

Input: observers are called by the daemon before and after each sync. Output: HTTP responses and Kubernetes events.
Nothing in this package changes a rule or delays a sync.
"""
