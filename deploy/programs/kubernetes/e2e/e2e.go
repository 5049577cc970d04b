//go:build tools

// Package e2e keeps the modules of Kubernetes' end-to-end tests in go.mod.
package e2e

import _ "k8s.io/kubernetes/test/e2e"
