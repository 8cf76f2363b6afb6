package doctor

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"
)

// Service is an HTTP service that is checked.
type Service struct {
	Name    string // for sentences, such as "the registry"
	URL     string
	Setting string      // where its address is set, such as "--controller"
	TLS     *tls.Config // nil: the default
}

// client returns an HTTP client for one request.
func (s Service) client() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, TLSClientConfig: s.TLS.Clone(), DisableKeepAlives: true,
			DialContext: (&net.Dialer{Timeout: 5 * time.Second}).DialContext, TLSHandshakeTimeout: 5 * time.Second,
		},
		Timeout: 10 * time.Second,
	}
}

// maxBody bounds the body of a health check, in bytes.
const maxBody = 4 << 10

// get requests a path of the service. The body is what was received of it, up to maxBody.
func (s Service) get(ctx context.Context, path string) (resp *http.Response, body []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimRight(s.URL, "/")+path, nil)
	if err != nil {
		return nil, nil, err
	}
	resp, err = s.client().Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err = io.ReadAll(io.LimitReader(resp.Body, maxBody))
	return resp, body, err
}

// Reachable returns the check whether a service answers at its address, and is ready.
func Reachable(s Service) Check {
	return Check{s.Name, func(ctx context.Context) Finding {
		begun := time.Now()
		resp, body, err := s.get(ctx, "/readyz") //nolint:bodyclose // get closes it
		if err != nil {
			return Finding{Failed, s.URL + " cannot be reached: " + reason(err), s.reachRemedy(err)}
		}
		took := time.Since(begun).Round(time.Millisecond)
		switch {
		case resp.StatusCode == http.StatusOK && took > time.Second:
			return Finding{
				Warning, fmt.Sprintf("%s took %s to answer", s.URL, took),
				"check the load of its machine, its disk and the network between",
			}
		case resp.StatusCode == http.StatusOK:
			return Finding{Outcome: OK, Detail: fmt.Sprintf("%s answered in %s", s.URL, took)}
		case resp.StatusCode == http.StatusServiceUnavailable:
			return Finding{Failed, fmt.Sprintf("%s is not ready: %s", s.URL, shorten(string(body))), "see its log"}
		}
		return Finding{
			Failed, fmt.Sprintf("%s answered HTTP %s", s.URL, resp.Status), "check the address: " + s.Setting,
		}
	}}
}

// shorten returns the beginning of a text, in one line.
func shorten(text string) string {
	const limit = 200
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + "…"
	}
	return text
}

// reason returns the innermost error of a call, which names the cause.
func reason(err error) string {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return err.Error()
}

// reachRemedy returns what to do when a service cannot be reached.
func (s Service) reachRemedy(err error) string {
	_, noName := errors.AsType[*net.DNSError](err)
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	switch {
	case noName:
		return "check the host name in " + s.Setting + ", and the DNS servers of this machine"
	case untrusted:
		return "trust the CA of its certificate (--ca-cert), or have the certificate name this host"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "start it, or correct its address: " + s.Setting
	case strings.Contains(err.Error(), "HTTP response to HTTPS client"):
		return "its address begins with http://: " + s.Setting
	}
	return "open the port between this machine and it (docs/firewall.md), or correct its address: " + s.Setting
}

// Limits of the difference of two clocks.
const (
	clockWarning = 2 * time.Second
	clockFailure = 30 * time.Second // API keys and certificates are refused
)

// Clock returns the check whether the clock of this machine agrees with that of a service. An answer's time has a
// resolution of one second.
func Clock(s Service) Check {
	return Check{"clock", func(ctx context.Context) Finding {
		begun := time.Now()
		resp, _, err := s.get(ctx, "/livez") //nolint:bodyclose // get closes it
		took := time.Since(begun)
		if err != nil {
			return Finding{Warning, "not compared: " + s.Name + " cannot be reached", "see the check of " + s.Name}
		}
		date, err := http.ParseTime(resp.Header.Get("Date"))
		if err != nil {
			return Finding{
				Warning, "not compared: " + s.Name + " does not name its time", "check the address: " + s.Setting,
			}
		}
		return evaluateClock(begun.Add(took/2).Sub(date.Add(500*time.Millisecond)), took/2+500*time.Millisecond, s.Name)
	}}
}

// evaluateClock evaluates the offset of this machine's clock, which is known up to an uncertainty.
func evaluateClock(offset, uncertainty time.Duration, name string) Finding {
	size := max(offset.Abs()-uncertainty, 0)
	direction := "ahead of"
	if offset < 0 {
		direction = "behind"
	}
	text := fmt.Sprintf("this machine is %s %s %s", offset.Abs().Round(time.Second), direction, name)
	const remedy = "synchronize the clocks of both machines by NTP, such as chrony or systemd-timesyncd"
	switch {
	case size > clockFailure:
		return Finding{Failed, text, remedy}
	case size > clockWarning:
		return Finding{Warning, text, remedy}
	}
	return Finding{Outcome: OK, Detail: "agrees with " + name + " within " +
		max(size+uncertainty, time.Second).Round(time.Second).String()}
}

// Certificate returns the check of the certificate that a service presents. It is ok for a service without TLS.
func Certificate(s Service) Check {
	return Check{"certificate of " + s.Name, func(ctx context.Context) Finding {
		u, err := url.Parse(s.URL)
		if err != nil || u.Scheme != "https" {
			return Finding{Outcome: OK, Detail: s.URL + " does not use TLS"}
		}
		config := s.TLS.Clone()
		if config == nil {
			config = &tls.Config{MinVersion: tls.VersionTLS12}
		}
		port := u.Port()
		if port == "" {
			port = "443"
		}
		d := tls.Dialer{NetDialer: &net.Dialer{Timeout: 5 * time.Second}, Config: config}
		conn, err := d.DialContext(ctx, "tcp", net.JoinHostPort(u.Hostname(), port))
		if err != nil {
			return Finding{Failed, reason(err), s.reachRemedy(err)}
		}
		defer func() { _ = conn.Close() }()
		tlsConn, ok := conn.(*tls.Conn)
		if !ok || len(tlsConn.ConnectionState().PeerCertificates) == 0 {
			return Finding{Warning, s.Name + " presented no certificate", "check the address: " + s.Setting}
		}
		return evaluateCertificate(tlsConn.ConnectionState().PeerCertificates[0], time.Now(), config.InsecureSkipVerify)
	}}
}
