// The etcd that the API server of the tests keeps its objects in: the server alone, without its command-line clients.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
