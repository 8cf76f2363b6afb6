package buildyard

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strings"
)

// hostNamePattern is a DNS name, or a wildcard for one label.
var hostNamePattern = regexp.MustCompile(
	`^(\*\.)?[a-zA-Z0-9_]([a-zA-Z0-9_-]{0,61}[a-zA-Z0-9_])?(\.[a-zA-Z0-9_]([a-zA-Z0-9_-]{0,61}[a-zA-Z0-9_])?)*$`)

// maxHostNameBytes bounds a DNS name.
const maxHostNameBytes = 253

// checkHostNames checks the additional names of the certificate.
func (o *initOptions) checkHostNames() error {
	if !o.tls {
		return errors.New("--name requires --tls")
	}
	if len(o.hostNames) == 0 || slices.Contains(o.hostNames, "") {
		return errors.New("--name: name is empty; want a host name or an IP address")
	}
	for _, name := range o.hostNames {
		isHost := len(name) <= maxHostNameBytes && hostNamePattern.MatchString(name)
		if net.ParseIP(name) == nil && !isHost {
			return fmt.Errorf("--name: %q is not a host name or an IP address; want one such as build.example", name)
		}
	}
	return nil
}

// warnIgnoredNames warns if an existing certificate was kept that does not have all requested names.
func (o *initOptions) warnIgnoredNames(pair certificatePair) error {
	if pair.created || len(o.hostNames) == 0 {
		return nil
	}
	der, err := readPEM(pair.certPath)
	if err != nil {
		return err
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return fmt.Errorf("%s: %w", pair.certPath, err)
	}
	missing := slices.DeleteFunc(slices.Clone(o.hostNames), func(name string) bool {
		return slices.Contains(cert.DNSNames, name) || cert.VerifyHostname(name) == nil
	})
	if len(missing) == 0 {
		return nil
	}
	_, err = fmt.Fprintf(o.Err, "warning: --name %s is ignored, because the existing certificate is kept. For a "+
		"certificate with all names, remove it and its key, and run init again with all names: rm %s %s\n",
		strings.Join(missing, ","), shellWord(pair.certPath), shellWord(pair.keyPath))
	return err
}
