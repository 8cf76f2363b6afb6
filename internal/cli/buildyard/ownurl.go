package buildyard

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"strings"

	"github.com/buildyard/buildyard/internal/cloudkey"
	"github.com/buildyard/buildyard/internal/config"
	"github.com/buildyard/buildyard/internal/controller/cloudidentity"
)

// cloudOptions are what the controller announces to nodes, and how it recognizes its own URLs.
func (s *ControllerService) cloudOptions() (cloudidentity.Options, error) {
	o := cloudidentity.Options{URLs: s.settings.List(config.AdvertiseURLs), IsOwnURL: s.isOwnURL}
	file := s.settings.String(config.AdvertiseCA)
	if file == "" {
		return o, nil
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return o, fmt.Errorf("%s: %w", config.AdvertiseCA, err)
	}
	if o.CA = strings.TrimSpace(string(raw)); o.CA == "" {
		return o, fmt.Errorf("%s: %s is empty; want certificates in PEM form", config.AdvertiseCA, file)
	}
	if err := cloudkey.CheckCA(o.CA); err != nil {
		return o, fmt.Errorf("%s: %s: %w", config.AdvertiseCA, file, err)
	}
	return o, nil
}

// isOwnURL reports whether a URL in canonical form is one of this process: scheme and port are those of a listener, and
// the host is this machine or a name in the certificate. remote is the address of the node that uses it.
func (s *ControllerService) isOwnURL(text, remote string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Path != "" {
		return false
	}
	listeners := []*listener{s.listener}
	if s.nodePort != nil {
		listeners = append(listeners, s.nodePort.listener)
	}
	for _, l := range listeners {
		addr, ok := l.netListener.Addr().(*net.TCPAddr)
		if ok && u.Scheme+"://" == l.scheme() && u.Port() == strconv.Itoa(addr.Port) &&
			(isOwnHost(u.Hostname(), remote) || hasCertificateFor(l.server.TLSConfig, u.Hostname())) {
			return true
		}
	}
	return false
}

// isOwnHost reports whether a host is this machine. A loopback address is, for a node on this machine only: for others
// it is their own.
func isOwnHost(host, remote string) bool {
	peer, err := netip.ParseAddrPort(remote)
	isLocal := err == nil && peer.Addr().Unmap().IsLoopback()
	if ip, err := netip.ParseAddr(host); err == nil {
		if ip.Unmap().IsLoopback() {
			return isLocal
		}
		return hasAddress(ip.Unmap())
	}
	if host == "localhost" {
		return isLocal
	}
	name, err := os.Hostname()
	short, _, _ := strings.Cut(name, ".")
	return err == nil && (strings.EqualFold(host, name) || strings.EqualFold(host, short))
}

// hasAddress reports whether a network interface of this machine has an address.
func hasAddress(ip netip.Addr) bool {
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return false
	}
	for _, addr := range addrs {
		if prefix, err := netip.ParsePrefix(addr.String()); err == nil && prefix.Addr().Unmap() == ip.WithZone("") {
			return true
		}
	}
	return false
}

// hasCertificateFor reports whether a server has a certificate for a host.
func hasCertificateFor(config *tls.Config, host string) bool {
	if config == nil || config.GetCertificate == nil {
		return false
	}
	cert, err := config.GetCertificate(&tls.ClientHelloInfo{ServerName: host})
	return err == nil && cert.Leaf != nil && cert.Leaf.VerifyHostname(host) == nil
}
