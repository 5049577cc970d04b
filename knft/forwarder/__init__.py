"""Serves NodePorts on loopback addresses (docs/behaviour/loopback-nodeports.md): listeners on 127.0.0.1 and ::1.

    sync ──LocalhostNodePorts (observer)──▶ Forwarder (thread) ──pipe──▶ program (process) ⇄ clients and endpoints

Connections are forwarded by a process of its own, which is started when the first NodePort needs it, so that its work
neither delays a sync nor uses knft's memory and privileges.
"""
