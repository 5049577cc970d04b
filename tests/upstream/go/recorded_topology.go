//go:build linux

package proxy

import (
	"sort"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/proxy/recorder"
)

// CategorizeEndpoints records kube-proxy's own function, which tests/upstream/source.py renames.
func CategorizeEndpoints(endpoints []Endpoint, port ServicePort, nodeName string, labels map[string]string) ([]Endpoint, []Endpoint, []Endpoint, bool) {
	cluster, local, all, any := originalCategorizeEndpoints(endpoints, port, nodeName, labels)
	recorder.Categorized(map[string]interface{}{
		"nodeName":            nodeName,
		"zone":                labels[v1.LabelTopologyZone],
		"internalPolicyLocal": port.InternalPolicyLocal(),
		"externalPolicyLocal": port.ExternalPolicyLocal(),
		"nodePort":            port.NodePort(),
		"nodeHints":           utilfeature.DefaultFeatureGate.Enabled(features.PreferSameTrafficDistribution),
		"endpoints":           recordedEndpoints(endpoints),
		"result": map[string]interface{}{
			"cluster": endpointNames(cluster),
			"local":   endpointNames(local),
			"all":     endpointNames(all),
			"any":     any,
		},
	})
	return cluster, local, all, any
}

func recordedEndpoints(endpoints []Endpoint) []map[string]interface{} {
	recorded := []map[string]interface{}{}
	for _, endpoint := range endpoints {
		recorded = append(recorded, map[string]interface{}{
			"endpoint":    endpoint.String(),
			"isLocal":     endpoint.IsLocal(),
			"ready":       endpoint.IsReady(),
			"serving":     endpoint.IsServing(),
			"terminating": endpoint.IsTerminating(),
			"zoneHints":   sets.List(endpoint.ZoneHints()),
			"nodeHints":   sets.List(endpoint.NodeHints()),
		})
	}
	return recorded
}

func endpointNames(endpoints []Endpoint) []string {
	names := []string{}
	for _, endpoint := range endpoints {
		names = append(names, endpoint.String())
	}
	sort.Strings(names)
	return names
}
