"""kube-proxy's configuration: what flags and fields come to, who wins, what is refused, what is written again."""
