package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// authority signs everything one control plane needs and keeps it as files in dir.
type authority struct {
	dir  string
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// keysIn makes the certificates of a control plane, or keeps those that an earlier start left in dir.
func keysIn(dir string) error {
	complete := filepath.Join(dir, "complete")
	if _, err := os.Stat(complete); err == nil {
		return nil
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	a := authority{dir: dir}
	if err := a.found(); err != nil {
		return err
	}
	server := x509.Certificate{
		Subject:     pkix.Name{CommonName: "kube-apiserver"},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv4(10, 0, 0, 1)},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
	}
	if err := a.issue("apiserver", server); err != nil {
		return err
	}
	admin := x509.Certificate{
		Subject:     pkix.Name{CommonName: "admin", Organization: []string{"system:masters"}},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if err := a.issue("admin", admin); err != nil {
		return err
	}
	// Service account tokens are signed by RSA, as in every cluster that kubeadm made.
	signer, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return err
	}
	if err := a.write("sa.key", "RSA PRIVATE KEY", x509.MarshalPKCS1PrivateKey(signer)); err != nil {
		return err
	}
	return os.WriteFile(complete, nil, 0o600)
}

// found makes the authority's own self-signed certificate.
func (a *authority) found() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template := lifetime(x509.Certificate{
		Subject:               pkix.Name{CommonName: "control-plane-for-tests"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
	})
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
	if err != nil {
		return err
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return err
	}
	a.key = key
	return a.write("ca.crt", "CERTIFICATE", der)
}

// issue signs template under a fresh key; both become NAME.crt and NAME.key.
func (a *authority) issue(name string, template x509.Certificate) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template = lifetime(template)
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := x509.CreateCertificate(rand.Reader, &template, a.cert, key.Public(), a.key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return err
	}
	if err := a.write(name+".crt", "CERTIFICATE", der); err != nil {
		return err
	}
	return a.write(name+".key", "EC PRIVATE KEY", private)
}

func (a *authority) write(name, kind string, der []byte) error {
	text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	return os.WriteFile(filepath.Join(a.dir, name), text, 0o600)
}

func lifetime(c x509.Certificate) x509.Certificate {
	now := time.Now()
	c.SerialNumber = big.NewInt(now.UnixNano())
	c.NotBefore, c.NotAfter = now.Add(-time.Hour), now.AddDate(10, 0, 0)
	return c
}

// writeKubeconfig writes the administrator's kubeconfig with all keys inside, so that it can be copied alone.
func writeKubeconfig(path, server, dir string) error {
	var embedded []any
	for _, name := range []string{"ca.crt", "admin.crt", "admin.key"} {
		raw, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		embedded = append(embedded, base64.StdEncoding.EncodeToString(raw))
	}
	text := fmt.Sprintf(`apiVersion: v1
kind: Config
current-context: test
contexts:
- name: test
  context: {cluster: test, user: admin}
clusters:
- name: test
  cluster:
    server: `+server+`
    certificate-authority-data: %s
users:
- name: admin
  user:
    client-certificate-data: %s
    client-key-data: %s
`, embedded...)
	return os.WriteFile(path, []byte(text), 0o600)
}
