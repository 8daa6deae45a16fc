//go:build kcm

package main

import (
	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

func init() {
	programs["kube-controller-manager"] = func() int {
		return cli.Run(app.NewControllerManagerCommand())
	}
}
