package certs

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/auth/certs/certstest"
	"github.com/buildyard/buildyard/internal/farm"
)

var _ = auth.Authenticator{Certificate: (*Clients)(nil).Identity}

// service is a server that returns to each caller its identity.
type service struct {
	*Server
	clients *Clients
	url     string
	dir     string
	ca      *certstest.Authority
	ahead   atomic.Int64 // its clock, in ns
}

func (s *service) now() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }

func newService(t *testing.T, proxy Proxy, revoked ...certstest.Pair) *service {
	t.Helper()
	return serviceOf(t, certstest.New(t, "CA"), proxy, revoked...)
}

func serviceOf(t *testing.T, ca *certstest.Authority, proxy Proxy, revoked ...certstest.Pair) *service {
	t.Helper()
	s := &service{dir: t.TempDir(), ca: ca}
	cert, key := ca.Server(t, "127.0.0.1").Files(t, s.dir)
	var err error
	s.clients, err = OpenClients(ClientOptions{
		CA: put(t, s.dir, "ca.pem", ca.CertPEM()), CRLs: []string{put(t, s.dir, "crl.pem", ca.CRL(t, revoked...))},
		Proxy: proxy, Now: s.now,
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.Server, err = Open(Options{Cert: cert, Key: key, Clients: s.clients}); err != nil {
		t.Fatal(err)
	}
	s.url = serve(t, s.Config(), s.who)
	return s
}

// who responds with "name [groups]", "nobody", or the cause of a refusal.
func (s *service) who(w http.ResponseWriter, r *http.Request) {
	name, groups, ok, err := s.clients.Identity(r)
	switch {
	case err != nil && farm.CodeOf(err) != farm.CodeUnauthenticated:
		w.WriteHeader(http.StatusInternalServerError)
	case err != nil:
		_, _ = io.WriteString(w, err.Error())
	case !ok:
		_, _ = io.WriteString(w, "nobody")
	default:
		_, _ = fmt.Fprintf(w, "%s %q", name, groups)
	}
}

// as returns a client with a certificate, shown whatever the server asks for.
func (s *service) as(t *testing.T, pairs ...tls.Certificate) *http.Client {
	config := &tls.Config{RootCAs: certstest.Pool(s.ca)}
	if len(pairs) > 0 {
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			return &pairs[0],
				nil
		}
	}
	return client(t, config)
}

// refresh lets the service look at its files now.
func (s *service) refresh(t *testing.T) { s.clients.files.reloadChanged(t.Context(), 1) }

func TestClientCertificates(t *testing.T) {
	ca, foreign := certstest.New(t, "CA"), certstest.New(t, "CA")
	middle := ca.Below(t, "Middle")
	subject := func(s pkix.Name) tls.Certificate {
		return ca.Issue(t, &x509.Certificate{Subject: s, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}).
			TLS()
	}
	revoked := ca.Client(t, "eve")
	s := serviceOf(t, ca, Direct, revoked)
	late := ca.Issue(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "x"}, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().Add(-time.Minute),
	})
	early := ca.Issue(t, &x509.Certificate{Subject: pkix.Name{CommonName: "x"}, NotBefore: time.Now().Add(time.Hour)})
	for _, c := range []struct {
		name string
		show []tls.Certificate
		want string // "": the handshake fails
	}{
		{"none", nil, "nobody"},
		{"unit", []tls.Certificate{ca.Client(t, "ann", "ci").TLS()}, `ann ["ci"]`},
		{"units", []tls.Certificate{
			subject(pkix.Name{CommonName: "ann", OrganizationalUnit: []string{"b", "a"}, Organization: []string{"o"}}),
		}, `ann ["a" "b"]`},
		{
			"organizations",
			[]tls.Certificate{subject(pkix.Name{CommonName: "ann", Organization: []string{"o", "p"}})},
			`ann ["o" "p"]`,
		},
		{"no group", []tls.Certificate{ca.Client(t, "ann").TLS()}, `ann []`},
		{"through an intermediate", []tls.Certificate{middle.Client(t, "ann", "ci").TLS(middle)}, `ann ["ci"]`},
		{"intermediate missing", []tls.Certificate{middle.Client(t, "ann", "ci").TLS()}, ""},
		{"foreign authority of the same name", []tls.Certificate{foreign.Client(t, "ann").TLS()}, ""},
		{"of a server", []tls.Certificate{ca.Server(t, "ann").TLS()}, ""},
		{"expired", []tls.Certificate{late.TLS()}, ""},
		{"not yet valid", []tls.Certificate{early.TLS()}, ""},
		{"revoked", []tls.Certificate{revoked.TLS()}, ""},
		{"no name", []tls.Certificate{subject(pkix.Name{OrganizationalUnit: []string{"ci"}})}, ""},
		{"name of two lines", []tls.Certificate{subject(pkix.Name{CommonName: "a\nb"})}, ""},
		{"long name", []tls.Certificate{subject(pkix.Name{CommonName: strings.Repeat("a", maxNameBytes+1)})}, ""},
		{"group of two lines", []tls.Certificate{
			subject(pkix.Name{CommonName: "a", OrganizationalUnit: []string{"b\nc"}}),
		}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, _, err := get(s.as(t, c.show...), s.url)
			if (err != nil) != (c.want == "") || got != c.want {
				t.Errorf("got %q, %v; want %q", got, err, c.want)
			}
		})
	}
}

// TestLiveConnections: what changes while a connection is open counts at its next request.
func TestLiveConnections(t *testing.T) {
	s := newService(t, Direct)
	pair := s.ca.Client(t, "ann", "ci")
	c := s.as(t, pair.TLS())
	ask := func(want string) {
		t.Helper()
		if got, _, err := get(c, s.url); err != nil || !strings.HasPrefix(got, want) {
			t.Errorf("got %q, %v; want %q", got, err, want)
		}
	}
	crl, ca := filepath.Join(s.dir, "crl.pem"), filepath.Join(s.dir, "ca.pem")
	ask(`ann ["ci"]`)
	certstest.Write(t, crl, s.ca.CRL(t, pair))
	s.refresh(t)
	ask("Authentication Required: the client certificate is revoked")
	if _, _, err := get(s.as(t, pair.TLS()), s.url); err == nil {
		t.Error("a new connection with a revoked certificate is greeted")
	}
	certstest.Write(t, crl, []byte("broken"))
	s.refresh(t)
	ask("Authentication Required: the client certificate is revoked")
	if !strings.Contains(s.clients.Alarm(), "are not valid, and the former ones count") {
		t.Errorf("no alarm: %q", s.clients.Alarm())
	}
	certstest.Write(t, crl, s.ca.CRL(t))
	s.refresh(t)
	ask(`ann ["ci"]`)
	s.ahead.Store(int64(48 * time.Hour))
	ask("Authentication Required: invalid client certificate: x509: certificate has expired")
	s.ahead.Store(0)
	ask(`ann ["ci"]`)
	other := certstest.New(t, "Other")
	certstest.Write(t, ca, other.CertPEM())
	certstest.Write(t, crl, other.CRL(t))
	s.refresh(t)
	ask("Authentication Required: invalid client certificate")
	if got, _, err := get(s.as(t, other.Client(t, "bob").TLS()), s.url); err != nil || got != "bob []" {
		t.Errorf("the new authority's client: %q %v", got, err)
	}
}

// TestResumption: a resumed session is verified as a new one is.
func TestResumption(t *testing.T) {
	for _, version := range []uint16{tls.VersionTLS12, tls.VersionTLS13} {
		s := newService(t, Direct)
		pair := s.ca.Client(t, "ann")
		shown := []tls.Certificate{pair.TLS()}
		c := client(t, &tls.Config{
			RootCAs: certstest.Pool(s.ca), MaxVersion: version, Certificates: shown,
			ClientSessionCache: tls.NewLRUClientSessionCache(4),
		})
		for _, resumed := range []bool{false, true} {
			got, state, err := get(c, s.url)
			if err != nil || got != "ann []" || state.DidResume != resumed {
				t.Fatalf("%x: %q %v", version, got, err)
			}
			c.CloseIdleConnections()
		}
		certstest.Write(t, filepath.Join(s.dir, "crl.pem"), s.ca.CRL(t, pair))
		s.refresh(t)
		if got, _, err := get(c, s.url); err == nil {
			t.Errorf("%x: a session of a revoked certificate is taken up: %s", version, got)
		}
	}
}

func TestRevokedIntermediate(t *testing.T) {
	ca := certstest.New(t, "CA")
	middle := ca.Below(t, "Middle")
	s := serviceOf(t, ca, Direct, middle.Pair)
	if got, _, err := get(s.as(t, middle.Client(t, "ann").TLS(middle)), s.url); err == nil {
		t.Errorf("a certificate of a revoked authority counts: %s", got)
	}
}

func TestWrongAuthorities(t *testing.T) {
	dir, ca := t.TempDir(), certstest.New(t, "CA")
	for _, c := range []struct {
		name, path string
		says       []string
	}{
		{"nothing", "", []string{"a CA file to verify them"}},
		{"missing", filepath.Join(dir, "none"), []string{"client certificates of the API: ", "read "}},
		{"no PEM", put(t, dir, "text", []byte("hello")), []string{"has no certificate in PEM form"}},
		{"no authority", put(t, dir, "leaf",
			ca.Client(t, "ann").CertPEM()), []string{`"CN=ann"`, "cannot issue client certificates"}},
	} {
		_, err := OpenClients(ClientOptions{What: "the API", CA: c.path})
		wants(t, err, c.says...)
	}
	var nobody *Clients
	if _, _, ok, err := nobody.Identity(&http.Request{}); ok || err != nil {
		t.Error("nobody is somebody")
	}
}

func TestRevocationLists(t *testing.T) {
	ca, second, same := certstest.New(t, "CA"), certstest.New(t, "Second"), certstest.New(t, "CA")
	noLists := certstest.New(t, "x").Issue(t, &x509.Certificate{
		Subject: pkix.Name{CommonName: "No Lists"}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageCertSign,
	})
	able := *noLists.Cert
	able.KeyUsage |= x509.KeyUsageCRLSign
	unable := &certstest.Authority{Pair: certstest.Pair{Cert: &able, Key: noLists.Key}}
	ann, bob := ca.Client(t, "ann"), second.Client(t, "bob")
	now := time.Now()
	list := func(a *certstest.Authority, change func(*x509.RevocationList)) []byte {
		l := &x509.RevocationList{
			ThisUpdate: now, NextUpdate: now.Add(time.Hour),
			RevokedCertificateEntries: []x509.RevocationListEntry{
				{SerialNumber: ann.Cert.SerialNumber, RevocationTime: now},
			},
		}
		if change != nil {
			change(l)
		}
		return a.List(t, l)
	}
	extension := func(critical bool, last int) pkix.Extension {
		return pkix.Extension{Id: []int{2, 5, 29, last}, Critical: critical, Value: []byte{4, 0}}
	}
	authorities := []*x509.Certificate{ca.Cert, second.Cert, noLists.Cert}
	garbled := list(ca, nil)
	garbled[len(garbled)-1] ^= 1
	for _, c := range []struct {
		name    string
		text    []byte
		revoked []certstest.Pair
		says    string
	}{
		{"PEM", ca.CRL(t, ann), []certstest.Pair{ann}, ""},
		{"DER", list(ca, nil), []certstest.Pair{ann}, ""},
		{"several", slices.Concat(ca.CRL(t), []byte("of Second:\n"), second.CRL(t, bob),
			ca.CRL(t, ann)), []certstest.Pair{ann, bob}, ""},
		{"same number, other issuer", second.CRL(t, ann), nil, ""},
		{
			"scope",
			list(ca, func(l *x509.RevocationList) { l.ExtraExtensions = []pkix.Extension{extension(true, 28)} }),
			[]certstest.Pair{ann},
			"",
		},
		{"empty file", nil, nil, "no revocation list in PEM or DER form"},
		{"text", []byte("hello"), nil, "no revocation list in PEM or DER form"},
		{"other PEM", ca.CertPEM(), nil, "no revocation list in PEM or DER form"},
		{"another key", same.CRL(t, ann), nil, "the signature does not match the CA"},
		{
			"unknown issuer", certstest.New(t, "Other issuer").CRL(t), nil,
			`of "CN=Other issuer": the list was not issued by a trusted CA: "CN=CA", "CN=Second"`,
		},
		{"may not sign lists", unable.CRL(t), nil, "the signature does not match the CA"},
		{"one of two", append(ca.CRL(t), same.CRL(t)...), nil, "revocation list 2 in "},
		{"garbled", garbled, nil, "the signature does not match the CA"},
		{
			"delta",
			list(ca, func(l *x509.RevocationList) { l.ExtraExtensions = []pkix.Extension{extension(true, 27)} }),
			nil, "delta revocation lists are not supported",
		},
		{"unknown", list(ca, func(l *x509.RevocationList) {
			l.ExtraExtensions = []pkix.Extension{extension(true, 99)}
		}), nil, "critical extension 2.5.29.99"},
		{"indirect", list(ca, func(l *x509.RevocationList) {
			l.RevokedCertificateEntries[0].ExtraExtensions = []pkix.Extension{extension(true, 29)}
		}), nil, "certificates by other issuers"},
		{"unknown entry", list(ca, func(l *x509.RevocationList) {
			l.RevokedCertificateEntries[0].ExtraExtensions = []pkix.Extension{extension(true, 99)}
		}), nil, "critical extension 2.5.29.99"},
	} {
		t.Run(c.name, func(t *testing.T) {
			lists, err := crlsIn("crl", c.text, authorities)
			if c.says != "" {
				wants(t, err, c.says, "in crl: ")
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			trust := newTrust(authorities, lists)
			for _, p := range []certstest.Pair{ann, bob} {
				if want := slices.Contains(c.revoked, p); trust.isRevoked(p.Cert) != want {
					t.Errorf("%s: revoked is not %v", p.Cert.Subject, want)
				}
			}
		})
	}
}

func TestOldListsCount(t *testing.T) {
	ca := certstest.New(t, "CA")
	ann := ca.Client(t, "ann")
	s := serviceOf(t, ca, Direct, ann)
	if a := s.clients.Alarm(); strings.Contains(a, "list") {
		t.Errorf("alarm: %s", a)
	}
	s.ahead.Store(int64(2 * time.Hour))
	if a := s.clients.Alarm(); !strings.Contains(a, `The revocation list of "CN=CA" in `) ||
		!strings.Contains(a, "it stays active") {
		t.Errorf("alarm: %s", a)
	}
	if _, _, err := get(s.as(t, ann.TLS()), s.url); err == nil {
		t.Error("an old list does not count")
	}
	s.ahead.Store(int64(-2 * time.Hour))
	if a := s.clients.Alarm(); !strings.Contains(a, "look at the clock") {
		t.Errorf("alarm: %s", a)
	}
}

// escaped is the certificate as ingress-nginx passes it on.
func escaped(text []byte) string {
	return strings.ReplaceAll(url.QueryEscape(string(text)), "+", "%20")
}

func TestReverseProxy(t *testing.T) {
	ca := certstest.New(t, "CA")
	ann, eve, proxy := ca.Client(t, "ann", "ci"), ca.Client(t, "eve"), ca.Client(t, "proxy")
	on, off := serviceOf(t, ca, BehindProxy, eve), serviceOf(t, ca, Direct, eve)
	good := escaped(ann.CertPEM())
	const no = "Authentication Required: client certificate forwarded by the proxy: "
	for _, c := range []struct {
		name   string
		verify []string
		cert   []string
		want   string // when the setting is on
	}{
		{"good", []string{"SUCCESS"}, []string{good}, `ann ["ci"]`},
		{"good again", []string{"SUCCESS"}, []string{good}, `ann ["ci"]`},
		{"plus as it is", []string{"SUCCESS"}, []string{strings.ReplaceAll(good, "%2B", "+")}, `ann ["ci"]`},
		{"no headers", nil, nil, `proxy []`},
		{"none", []string{"NONE"}, nil, "nobody"},
		{"empty", []string{""}, []string{good}, "nobody"},
		{"failed", []string{"FAILED:expired"}, []string{good}, no + errProxyRefused.Error()},
		{"lower case", []string{"success"}, []string{good}, no + errProxyRefused.Error()},
		{"alone", nil, []string{good}, no + errNoVerifyHeader.Error()},
		{"without", []string{"SUCCESS"}, nil, no + errNoForwarded.Error()},
		{"verified twice", []string{"SUCCESS", "SUCCESS"}, []string{good}, no + errHeaderTwice.Error()},
		{"certificate twice", []string{"SUCCESS"}, []string{good, good}, no + errHeaderTwice.Error()},
		{"two certificates", []string{"SUCCESS"}, []string{escaped(slices.Concat(ann.CertPEM(), ann.CertPEM()))}, no +
			errForwardedForm.Error()},
		{"text before", []string{"SUCCESS"}, []string{escaped(append([]byte("x\n"), ann.CertPEM()...))}, no +
			errForwardedForm.Error()},
		{"key", []string{"SUCCESS"}, []string{escaped(ann.KeyPEM(t))}, no + errForwardedForm.Error()},
		{"no escape", []string{"SUCCESS"}, []string{"%zz"}, no + errForwardedForm.Error()},
		{"too long", []string{"SUCCESS"}, []string{strings.Repeat("a", maxForwardedBytes+1)}, no +
			errForwardedTooLong.Error()},
		{"revoked", []string{"SUCCESS"}, []string{escaped(eve.CertPEM())}, no + errRevoked.Error()},
		{"foreign", []string{"SUCCESS"}, []string{escaped(certstest.New(t, "CA").Client(t, "ann").CertPEM())}, no +
			"invalid client certificate: x509: certificate signed by unknown authority"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for s, want := range map[*service]string{on: c.want, off: `proxy []`} {
				req, _ := http.NewRequest(http.MethodGet, s.url, nil)
				req.Header[VerifyHeader], req.Header[CertHeader] = c.verify, c.cert
				resp, err := s.as(t, proxy.TLS()).Do(req) // the proxy has a separate certificate
				if err != nil {
					t.Fatal(err)
				}
				got, _ := io.ReadAll(resp.Body)
				resp.Body.Close()
				if !strings.HasPrefix(string(got), want) {
					t.Errorf("got %q, want %q", got, want)
				}
			}
		})
	}
}

// TestPlainProxy: a service behind a proxy does not need TLS itself.
func TestPlainProxy(t *testing.T) {
	s := newService(t, BehindProxy)
	r := &http.Request{
		Header: http.Header{VerifyHeader: {"SUCCESS"}, CertHeader: {escaped(s.ca.Client(t, "ann").CertPEM())}},
	}
	if name, _, ok, err := s.clients.Identity(r); !ok || err != nil || name != "ann" {
		t.Errorf("%v %v %v", name, ok, err)
	}
}

// TestRememberedIsBounded: what is remembered stays below its limit, and nothing that was
// refused is in it.
func TestRememberedIsBounded(t *testing.T) {
	trust := newTrust(nil, nil)
	for i := range maxVerified + 10 {
		trust.cacheResult([32]byte{byte(i), byte(i >> 8), byte(i >> 16)}, verifyResult{})
	}
	if len(trust.verified) > maxVerified {
		t.Errorf("%d are remembered", len(trust.verified))
	}
	s := newService(t, BehindProxy)
	foreign := certstest.New(t, "CA").Client(t, "ann")
	if _, err := s.clients.verifyForwarded(escaped(foreign.CertPEM())); err == nil {
		t.Error("a foreign certificate counts")
	}
	if n := len(s.clients.trust.Load().verified); n != 0 {
		t.Errorf("%d refusals are remembered", n)
	}
}

func TestOutgoing(t *testing.T) {
	s := newService(t, Direct)
	ask := func(o ClientTrust) error {
		config, err := o.Config()
		if err == nil {
			_, _, err = get(client(t, config), s.url)
		}
		return err
	}
	if err := ask(ClientTrust{CA: filepath.Join(s.dir, "ca.pem")}); err != nil {
		t.Error(err)
	}
	if err := ask(ClientTrust{Skip: true}); err != nil {
		t.Error(err)
	}
	wants(t, ask(ClientTrust{}), "certificate signed by unknown authority")
	wants(t, ask(ClientTrust{CA: filepath.Join(s.dir, "key.pem")}), "read CA file",
		"has no certificate in PEM form")
	wants(t, ask(ClientTrust{CA: filepath.Join(s.dir, "none")}), "read ")
}

func FuzzPassedCertificate(f *testing.F) {
	ca := certstest.New(f, "CA")
	f.Add(escaped(ca.Client(f, "ann", "ci").CertPEM()))
	f.Add("-----BEGIN%20CERTIFICATE-----%0A")
	f.Add("%")
	trust := newTrust([]*x509.Certificate{ca.Cert}, nil)
	f.Fuzz(func(t *testing.T, text string) {
		text, proxied, err := forwardedCertificate(http.Header{VerifyHeader: {"SUCCESS"}, CertHeader: {text}})
		if !proxied || err != nil {
			return
		}
		leaf, err := decodeForwarded(text)
		if err != nil {
			return
		}
		v, err := trust.verifyClient(leaf, nil, time.Now())
		if err == nil && (v.subject.name != "ann") {
			t.Errorf("%v is let in", v.subject)
		}
	})
}

func FuzzRevocationLists(f *testing.F) {
	ca := certstest.New(f, "CA")
	ann := ca.Client(f, "ann")
	text := ca.CRL(f, ann)
	block, _ := pem.Decode(text)
	f.Add(text)
	f.Add(block.Bytes)
	f.Add(append(text, text...))
	f.Fuzz(func(t *testing.T, text []byte) {
		lists, err := crlsIn("crl", text, []*x509.Certificate{ca.Cert})
		if err == nil && len(lists) == 0 {
			t.Error("no list, and no error")
		}
		for _, l := range lists {
			if len(l.revokedSerials) > 1 {
				t.Error("a list that the authority has not signed counts")
			}
		}
	})
}

func BenchmarkIdentity(b *testing.B) {
	ca := certstest.New(b, "CA")
	dir := b.TempDir()
	path := filepath.Join(dir, "ca.pem")
	certstest.Write(b, path, ca.CertPEM())
	ann := ca.Client(b, "ann", "ci")
	passed := http.Header{VerifyHeader: {"SUCCESS"}, CertHeader: {escaped(ann.CertPEM())}}
	for name, r := range map[string]*http.Request{
		"connection": {TLS: &tls.ConnectionState{PeerCertificates: []*x509.Certificate{ann.Cert}}},
		"proxy":      {Header: passed},
		"none":       {},
	} {
		for _, state := range []string{"warm", "cold"} {
			b.Run(name+"/"+state, func(b *testing.B) {
				c, err := OpenClients(ClientOptions{CA: path, Proxy: BehindProxy})
				if err != nil {
					b.Fatal(err)
				}
				b.ReportAllocs()
				for b.Loop() {
					if state == "cold" {
						clear(c.trust.Load().verified)
					}
					if _, _, ok, err := c.Identity(r); err != nil || ok != (name != "none") {
						b.Fatal(ok, err)
					}
				}
			})
		}
	}
}
