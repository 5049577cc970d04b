//go:build linux

// Package recorder writes what kube-proxy's unit tests do as JSON lines into the file that KNFT_EVENTS names.
//
// tests/upstream/source.py adds it, and calls of it, to a copy of kube-proxy's source.
package recorder

import (
	"encoding/json"
	"net"
	"os"
	"sort"
	"strings"
	"sync"
	"testing"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
)

// fields are those of an event; "event" names its kind.
type fields map[string]any

var (
	mutex    sync.Mutex
	encoder  *json.Encoder
	test     string
	trackers = map[any]int{}
)

// Test sets the name of the running test until it ends. kube-proxy's tests do not run in parallel.
func Test(t testing.TB) {
	previous := test
	test = t.Name()
	t.Cleanup(func() { test = previous })
}

// Service records that a change tracker got a Service, or its deletion, if current is nil.
func Service(tracker any, previous, current *v1.Service) {
	if current != nil {
		object(tracker, "Service", "v1", current.Namespace+"/"+current.Name, current)
	} else if previous != nil {
		object(tracker, "Service", "v1", previous.Namespace+"/"+previous.Name, nil)
	}
}

// Slice records that a change tracker got an EndpointSlice, or its deletion.
func Slice(tracker any, slice *discovery.EndpointSlice, removed bool) {
	var current any
	if !removed {
		current = slice
	}
	object(tracker, "EndpointSlice", "discovery.k8s.io/v1", slice.Namespace+"/"+slice.Name, current)
}

func object(tracker any, kind, version, name string, current any) {
	write(fields{"event": "object", "tracker": number(tracker), "kind": kind, "apiVersion": version, "name": name, "object": current})
}

// Sync records a finished sync: the trackers whose objects it applied, the proxier's configuration, and the rules.
func Sync(services, endpoints any, configuration, result map[string]any, err error) {
	event := fields{
		"event":         "sync",
		"trackers":      []int{number(services), number(endpoints)},
		"configuration": configuration,
		"result":        result,
		"failed":        err != nil,
	}
	write(event)
}

// Flow records a packet and its expected outcome with the rules of the last sync.
func Flow(name, source, protocol, destination string, port int, output string, masquerade bool) {
	write(fields{
		"event": "flow", "name": name, "source": source, "protocol": protocol,
		"destination": destination, "port": port, "output": output, "masquerade": masquerade,
	})
}

// Categorized records the endpoints that kube-proxy's test of their selection selects; other tests do so in each sync.
func Categorized(event map[string]any) {
	if strings.HasPrefix(test, "TestCategorizeEndpoints/") {
		event["event"] = "categorized"
		write(event)
	}
}

// Asserted records that a test compared the rules of the last sync with expected ones.
func Asserted() {
	write(fields{"event": "asserted"})
}

// Addresses returns the addresses of the node's interfaces, sorted.
func Addresses(found []net.Addr, _ error) []string {
	addresses := []string{}
	for _, address := range found {
		if network, ok := address.(*net.IPNet); ok && network.IP != nil {
			addresses = append(addresses, network.IP.String())
		}
	}
	sort.Strings(addresses)
	return addresses
}

// RandomFully returns whether kube-proxy adds --random-fully to its rules for masquerade, as its runner for iptables
// tells. Since Kubernetes 1.37 it always does, and the runner has no such method.
func RandomFully(runner any) bool {
	older, asks := runner.(interface{ HasRandomFully() bool })
	return !asks || older.HasRandomFully()
}

// number returns the number of a change tracker, which identifies it in the events.
func number(tracker any) int {
	mutex.Lock()
	defer mutex.Unlock()
	if _, known := trackers[tracker]; !known {
		trackers[tracker] = len(trackers)
	}
	return trackers[tracker]
}

func write(event fields) {
	mutex.Lock()
	defer mutex.Unlock()
	if encoder == nil {
		file, err := os.OpenFile(os.Getenv("KNFT_EVENTS"), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			panic(err)
		}
		encoder = json.NewEncoder(file)
	}
	event["test"] = test
	if err := encoder.Encode(event); err != nil {
		panic(err)
	}
}
