package connection

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/http"
	"os"
	"strings"
)

// Kind is what failed.
type Kind string

// The kinds of errors.
const (
	KindDNS          Kind = "dns"          // the host name was not resolved
	KindDial         Kind = "dial"         // no TCP connection
	KindCertificate  Kind = "certificate"  // TLS: the certificate is not trusted, or does not fit
	KindTLS          Kind = "tls"          // the handshake failed otherwise
	KindTimeout      Kind = "timeout"      // no answer in time
	KindInterrupted  Kind = "interrupted"  // the connection ended before the answer
	KindUnauthorized Kind = "unauthorized" // 401 or 403: the controller does not accept the node's credential
	KindStatus       Kind = "status"       // another HTTP status that is not an answer of a controller in order
	KindProof        Kind = "proof"        // the controller did not prove that it is part of the node's cloud
)

// remedies are what an operator can do about each kind.
var remedies = map[Kind]string{
	KindDNS:          "check the host name and the resolver of this host",
	KindDial:         "check that the controller runs, its port, and firewalls",
	KindCertificate:  "check the certificate of the controller, the CA of this node (--ca-cert), and the clock",
	KindTLS:          "check whether the URL needs http or https",
	KindTimeout:      "check the network and the load of the controller",
	KindInterrupted:  "check proxies between this node and the controller, and the controller's log",
	KindUnauthorized: "join again if the node was deleted; check a proxy that requires a log-in",
	KindStatus:       "check that the URL is that of a controller, and its log",
	KindProof:        "check that the URL belongs to the cloud that this node joined",
}

// Remedy returns what an operator can do.
func (k Kind) Remedy() string { return remedies[k] }

// kindOf returns what failed in a request that had no response.
func kindOf(err error) Kind {
	for _, c := range []struct {
		kind Kind
		is   func(error) bool
	}{
		{KindCertificate, isCertificate},
		{KindDNS, is[*net.DNSError]},
		{KindTLS, isTLS},
		{KindDial, isDial},
		{KindTimeout, isTimeout},
	} {
		if c.is(err) {
			return c.kind
		}
	}
	return KindInterrupted
}

// is reports whether an error of a type is in a chain.
func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}

func isCertificate(err error) bool {
	return is[*tls.CertificateVerificationError](err) || is[x509.UnknownAuthorityError](err) ||
		is[x509.HostnameError](err) || is[x509.CertificateInvalidError](err)
}

// isTLS reports an alert of the other side, or an answer that is not TLS.
func isTLS(err error) bool {
	return is[tls.RecordHeaderError](err) || is[tls.AlertError](err) ||
		strings.Contains(err.Error(), "server gave HTTP response to HTTPS client") // net/http has no type for it
}

func isDial(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

func isTimeout(err error) bool {
	failed, ok := errors.AsType[net.Error](err)
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, os.ErrDeadlineExceeded) || ok && failed.Timeout()
}

// kindOfStatus returns what failed according to the status of a response; "" for nothing.
func kindOfStatus(status int) Kind {
	switch {
	case status == http.StatusUnauthorized, status == http.StatusForbidden,
		status == http.StatusProxyAuthRequired:
		return KindUnauthorized
	case status >= http.StatusInternalServerError:
		return KindStatus
	default:
		return ""
	}
}
