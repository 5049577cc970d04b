//go:build linux

package ipvs

import (
	"fmt"
	"sort"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/kubernetes/pkg/proxy/recorder"
)

// syncProxyRules records kube-proxy's own syncProxyRules, which tests/upstream/source.py renames.
func (proxier *Proxier) syncProxyRules() error {
	if !proxier.isInitialized() {
		return proxier.originalSyncProxyRules()
	}
	bound, _ := proxier.netlinkHandle.GetLocalAddresses(defaultDummyDevice)
	all, _ := proxier.netlinkHandle.GetAllLocalAddresses()
	local := sets.List(all.Difference(bound))
	if !proxier.nodePortAddresses.MatchAll() {
		local = recorder.Addresses(proxier.networkInterfacer.InterfaceAddrs())
	}
	configuration := map[string]any{
		"family":            proxier.ipFamily,
		"nodeName":          proxier.nodeName,
		"nodeIP":            proxier.nodeIP,
		"localAddresses":    local,
		"localTraffic":      proxier.localDetector.IfLocal(),
		"masqueradeAll":     proxier.masqueradeAll,
		"masqueradeMark":    proxier.masqueradeMark,
		"nodePortAddresses": proxier.nodePortAddresses.String(),
		"topologyLabels":    proxier.topologyLabels,
		"scheduler":         proxier.ipvsScheduler,
		"randomFully":       recorder.RandomFully(proxier.iptables),
		"initialSync":       proxier.initialSync,
		"existingServers":   proxier.recordedServers(),
		"existingAddresses": sets.List(bound),
	}
	err := proxier.originalSyncProxyRules()
	bound, _ = proxier.netlinkHandle.GetLocalAddresses(defaultDummyDevice)
	result := map[string]any{
		"iptables-restore": strings.Split(proxier.iptablesData.String(), "\n"),
		"ipsets":           proxier.recordedSets(),
		"servers":          proxier.recordedServers(),
		"addresses":        sets.List(bound),
	}
	recorder.Sync(proxier.serviceChanges, proxier.endpointsChanges, configuration, result, err)
	return err
}

// recordedSets returns the entries of each ipset that has entries.
func (proxier *Proxier) recordedSets() map[string][]string {
	recorded := map[string][]string{}
	names, _ := proxier.ipset.ListSets()
	for _, name := range names {
		if entries, _ := proxier.ipset.ListEntries(name); len(entries) > 0 {
			sort.Strings(entries)
			recorded[name] = entries
		}
	}
	return recorded
}

// recordedServers returns the real servers, with their weights, of each virtual server.
func (proxier *Proxier) recordedServers() map[string][]string {
	recorded := map[string][]string{}
	servers, _ := proxier.ipvs.GetVirtualServers()
	for _, server := range servers {
		name := fmt.Sprintf("%s %s flags=%d timeout=%d", server, server.Scheduler, server.Flags, server.Timeout)
		recorded[name] = []string{}
		real, _ := proxier.ipvs.GetRealServers(server)
		for _, destination := range real {
			recorded[name] = append(recorded[name], fmt.Sprintf("%s weight=%d", destination, destination.Weight))
		}
		sort.Strings(recorded[name])
	}
	return recorded
}
