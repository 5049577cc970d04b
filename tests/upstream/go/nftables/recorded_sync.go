//go:build linux

package nftables

import (
	"strings"

	"k8s.io/kubernetes/pkg/proxy/recorder"
	"sigs.k8s.io/knftables"
)

// syncProxyRules records kube-proxy's own syncProxyRules, which tests/upstream/source.py renames.
func (proxier *Proxier) syncProxyRules() error {
	if !proxier.isInitialized() {
		return proxier.originalSyncProxyRules()
	}
	err := proxier.originalSyncProxyRules()
	configuration := map[string]any{
		"family":            proxier.ipFamily,
		"nodeName":          proxier.nodeName,
		"nodeIP":            proxier.nodeIP,
		"localAddresses":    recorder.Addresses(proxier.networkInterfacer.InterfaceAddrs()),
		"localTraffic":      proxier.localDetector.IfLocal(),
		"masqueradeAll":     proxier.masqueradeAll,
		"masqueradeMark":    proxier.masqueradeMark,
		"nodePortAddresses": proxier.nodePortAddresses.String(),
		"topologyLabels":    proxier.topologyLabels,
		"serviceCIDRs":      proxier.serviceCIDRs,
	}
	result := map[string]any{"nft": strings.Split(proxier.nftables.(*knftables.Fake).Dump(), "\n")}
	recorder.Sync(proxier.serviceChanges, proxier.endpointsChanges, configuration, result, err)
	return err
}
