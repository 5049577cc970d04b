//go:build linux

package iptables

import (
	"bytes"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/pkg/proxy/recorder"
	utiliptables "k8s.io/kubernetes/pkg/util/iptables"
)

// syncProxyRules records kube-proxy's own syncProxyRules, which tests/upstream/source.py renames.
func (proxier *Proxier) syncProxyRules() error {
	if !proxier.isInitialized() {
		return proxier.originalSyncProxyRules()
	}
	full, existing := proxier.needFullSync, proxier.existingChains()
	err := proxier.originalSyncProxyRules()
	configuration := map[string]any{
		"family":              proxier.ipFamily,
		"nodeName":            proxier.nodeName,
		"nodeIP":              proxier.nodeIP,
		"localAddresses":      recorder.Addresses(proxier.networkInterfacer.InterfaceAddrs()),
		"localTraffic":        proxier.localDetector.IfLocal(),
		"masqueradeAll":       proxier.masqueradeAll,
		"masqueradeMark":      proxier.masqueradeMark,
		"nodePortAddresses":   proxier.nodePortAddresses.String(),
		"topologyLabels":      proxier.topologyLabels,
		"localhostNodePorts":  proxier.localhostNodePorts,
		"conntrackTCPLiberal": proxier.conntrackTCPLiberal,
		"nfAcctCounters":      len(proxier.nfAcctCounters) > 0,
		"randomFully":         recorder.RandomFully(proxier.iptables),
		"fullSync":            full,
		"existingChains":      existing,
	}
	result := map[string]any{"iptables-restore": strings.Split(proxier.iptablesData.String(), "\n")}
	recorder.Sync(proxier.serviceChanges, proxier.endpointsChanges, configuration, result, err)
	return err
}

// existingChains returns the chains of Services in the nat table.
func (proxier *Proxier) existingChains() []string {
	saved := bytes.NewBuffer(nil)
	proxier.iptables.SaveInto(utiliptables.TableNAT, saved)
	chains := sets.New[string]()
	for chain := range utiliptables.GetChainsFromTable(saved.Bytes()) {
		if isServiceChainName(string(chain)) {
			chains.Insert(string(chain))
		}
	}
	return sets.List(chains)
}
