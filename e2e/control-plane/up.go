package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.etcd.io/etcd/server/v3/embed"
	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

// plan is what the command line of "up" asks for.
type plan struct {
	dir            string
	port           string
	kubeconfig     string
	stopOnStdinEOF bool
	apiserverFlags []string
}

func parse(args []string) plan {
	p := plan{dir: "control-plane-data"}
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		switch name {
		case "--dir":
			p.dir = value
		case "--port":
			p.port = value
		case "--kubeconfig":
			p.kubeconfig = value
		case "--stop-on-stdin-eof":
			p.stopOnStdinEOF = true
		default:
			p.apiserverFlags = append(p.apiserverFlags, arg)
		}
	}
	return p
}

// up runs etcd inside this process and becomes kube-apiserver.
func up() int {
	p := parse(os.Args[1:])
	args, closeEtcd, err := p.prepare()
	if err != nil {
		fmt.Fprintln(os.Stderr, "control-plane up:", err)
		return 1
	}
	defer closeEtcd()
	if p.stopOnStdinEOF {
		go func() {
			// The starter holds the other end: however it dies, this ends, and we with it.
			_, _ = io.Copy(io.Discard, os.Stdin)
			_ = syscall.Kill(os.Getpid(), syscall.SIGTERM)
		}()
	}
	os.Args = args
	return cli.Run(app.NewAPIServerCommand())
}

// prepare makes everything kube-apiserver needs and returns its command line.
func (p *plan) prepare() (args []string, stop func(), err error) {
	if p.dir, err = filepath.Abs(p.dir); err != nil {
		return nil, nil, err
	}
	keys := filepath.Join(p.dir, "pki")
	if err = keysIn(keys); err != nil {
		return nil, nil, err
	}
	if p.kubeconfig == "" {
		p.kubeconfig = filepath.Join(p.dir, "admin.kubeconfig")
	}
	etcd, err := startEtcd(filepath.Join(p.dir, "etcd"))
	if err != nil {
		return nil, nil, err
	}
	// After etcd, which takes free ports as well.
	if p.port == "" || p.port == "0" {
		if p.port, err = freePort(); err != nil {
			etcd.Close()
			return nil, nil, err
		}
	}
	server := "https://127.0.0.1:" + p.port
	if err = writeKubeconfig(p.kubeconfig, server, keys); err != nil {
		etcd.Close()
		return nil, nil, err
	}
	go announce(server, keys, filepath.Join(p.dir, "ready"))
	return append(apiserver(p.port, etcd.Clients[0].Addr().String(), keys), p.apiserverFlags...), etcd.Close, nil
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return fmt.Sprint(l.Addr().(*net.TCPAddr).Port), nil
}

// startEtcd starts a one-member etcd on free loopback ports. What it stores are test data: it never waits for the
// disk, and it elects itself within a tenth of a second.
func startEtcd(dir string) (*embed.Etcd, error) {
	loopback := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	c := embed.NewConfig()
	c.Dir = dir
	c.LogLevel = "error"
	c.UnsafeNoFsync = true
	c.TickMs, c.ElectionMs = 10, 100
	c.ListenClientUrls, c.AdvertiseClientUrls = loopback, loopback
	c.ListenPeerUrls, c.AdvertisePeerUrls = loopback, loopback
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	etcd, err := embed.StartEtcd(c)
	if err != nil {
		return nil, err
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return etcd, nil
	case <-time.After(time.Minute):
		etcd.Close()
		return nil, errors.New("etcd was not ready within a minute")
	}
}

func apiserver(port, etcd, keys string) []string {
	key := func(name string) string { return filepath.Join(keys, name) }
	return []string{
		"kube-apiserver",
		"--secure-port=" + port,
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		"--endpoint-reconciler-type=none", // an Endpoints object may not hold a loopback address
		"--etcd-servers=http://" + etcd,
		"--service-cluster-ip-range=10.0.0.0/20",
		"--authorization-mode=RBAC",
		"--client-ca-file=" + key("ca.crt"),
		"--tls-cert-file=" + key("apiserver.crt"),
		"--tls-private-key-file=" + key("apiserver.key"),
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + key("sa.key"),
		"--service-account-signing-key-file=" + key("sa.key"),
		"--disable-admission-plugins=ServiceAccount", // no controller makes the default account of a namespace
		"--profiling=false",
	}
}

// announce says READY, on standard output and as a file, once the API server finds itself well.
func announce(server, keys, file string) {
	_ = os.Remove(file)
	client, err := adminClient(keys)
	for err == nil {
		answer, failed := client.Get(server + "/readyz")
		if failed == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				client.CloseIdleConnections()
				fmt.Println("READY", server)
				err = os.WriteFile(file, []byte(server+"\n"), 0o600)
				break
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "control-plane up:", err)
		os.Exit(1)
	}
}

func adminClient(keys string) (*http.Client, error) {
	ca, err := os.ReadFile(filepath.Join(keys, "ca.crt"))
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	pair, err := tls.LoadX509KeyPair(filepath.Join(keys, "admin.crt"), filepath.Join(keys, "admin.key"))
	if err != nil {
		return nil, err
	}
	config := &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}}
	return &http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{TLSClientConfig: config}}, nil
}
