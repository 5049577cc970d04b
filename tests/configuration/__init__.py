"""kube-proxy's configuration: settings of flags and files, precedence, validation and the written file."""
