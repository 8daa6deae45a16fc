// Command control-plane is a Kubernetes control plane for tests: the real etcd and the real kube-apiserver, linked
// into one binary because nobody publishes them as something a Go toolchain alone can install.
//
//	control-plane up --dir=D [--port=P] [--kubeconfig=F] [--stop-on-stdin-eof] [KUBE-APISERVER FLAGS...]
//	control-plane kube-apiserver|etcd FLAGS...
//	control-plane kube-controller-manager|kubectl FLAGS...      (build tags kcm, kubectl)
//
// "up" is what the tests use: certificates, etcd and kube-apiserver in one process, READY on standard output.
package main

import (
	"fmt"
	"os"
	"slices"
	"strings"
	_ "time/tzdata"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

// programs maps the first argument to what runs; files with build tags add to it. Each finds its own name in
// os.Args[0] and its flags behind it, as if it had been started alone.
var programs = map[string]func() int{
	"up":   up,
	"etcd": func() int { etcdmain.Main(os.Args); return 0 },
	"kube-apiserver": func() int {
		return cli.Run(app.NewAPIServerCommand())
	},
}

func main() {
	if len(os.Args) > 1 {
		if run, known := programs[os.Args[1]]; known {
			os.Args = os.Args[1:]
			os.Exit(run())
		}
	}
	names := make([]string, 0, len(programs))
	for name := range programs {
		names = append(names, name)
	}
	slices.Sort(names)
	fmt.Fprintf(os.Stderr, "usage: control-plane %s [FLAGS]\n", strings.Join(names, "|"))
	os.Exit(2)
}
