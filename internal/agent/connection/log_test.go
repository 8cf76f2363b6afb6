package connection

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/buildyard/buildyard/internal/agent/datadir"
)

func openLog(t *testing.T) (datadir.Dir, *Log) {
	t.Helper()
	at, err := datadir.At(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return at, Open(at, "http://mirror:8089", slog.New(slog.DiscardHandler))
}

func read(t *testing.T, at datadir.Dir) Record {
	t.Helper()
	r, err := Read(at)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestLog: outcomes that differ are written immediately, equal ones once a minute.
func TestLog(t *testing.T) {
	at, l := openLog(t)
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	l.now = func() time.Time { return now }
	if r := read(t, at); len(r.Controllers) != 0 {
		t.Fatalf("record before the first request: %+v", r)
	}
	l.Response("https://a", http.StatusOK)
	first := now
	now = now.Add(10 * time.Second)
	l.Response("https://a", http.StatusConflict) // an answer of a controller
	r := read(t, at)
	if len(r.Controllers) != 1 || !r.Controllers[0].LastSuccess.Equal(first) || r.Controllers[0].Failing() ||
		r.RegistryMirror != "http://mirror:8089" {
		t.Errorf("record: %+v", r)
	}
	now = now.Add(time.Minute)
	l.Response("https://a", http.StatusOK)
	if r = read(t, at); !r.Controllers[0].LastSuccess.Equal(now) {
		t.Errorf("after a minute: %+v", r)
	}

	now = now.Add(time.Second)
	l.Response("https://a", http.StatusUnauthorized)
	l.Failure("https://b", errors.New(strings.Repeat("x", 10*maxText)))
	r = read(t, at)
	if len(r.Controllers) != 2 {
		t.Fatalf("record: %+v", r)
	}
	a := r.Controllers[0]
	if a.URL != "https://a" || !a.Failing() || a.LastError.Kind != KindUnauthorized || a.LastError.Status != 401 ||
		a.LastError.Remedy == "" || !a.LastSuccess.Equal(now.Add(-time.Second)) {
		t.Errorf("record of a: %+v %+v", a, a.LastError)
	}
	if b := r.Controllers[1]; len(b.LastError.Text) > maxText+8 || !b.LastSuccess.IsZero() {
		t.Errorf("record of b: %+v", b)
	}

	now = now.Add(time.Second)
	l.Response("https://a", http.StatusOK)
	if a := read(t, at).Controllers[0]; a.Failing() || a.LastError == nil {
		t.Errorf("after a success: %+v", a)
	}

	again := Open(at, "", slog.New(slog.DiscardHandler)) // the agent restarts
	again.now = l.now
	for i := range 2 * maxURLs {
		now = now.Add(time.Second)
		again.ProofFailure(fmt.Sprintf("https://c%d", i), errors.New("not part of the cloud"))
	}
	again.Close()
	if r = read(t, at); len(r.Controllers) != maxURLs || r.RegistryMirror != "" {
		t.Errorf("%d controllers, mirror %q", len(r.Controllers), r.RegistryMirror)
	}
}

// TestReadDamaged: a file that an agent did not write is an error, and not used.
func TestReadDamaged(t *testing.T) {
	at, _ := openLog(t)
	for _, content := range []string{"no JSON", strings.Repeat(" ", maxFile+1)} {
		if err := os.WriteFile(at.ConnectionsFile(), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := Read(at); err == nil {
			t.Errorf("%d bytes were read", len(content))
		}
	}
}

// TestKinds: the errors of real connections have their kinds.
func TestKinds(t *testing.T) {
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	secure.StartTLS()
	defer secure.Close()
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			<-r.Context().Done()
			return
		}
		panic(http.ErrAbortHandler)
	}))
	defer plain.Close()
	closed := httptest.NewServer(http.NotFoundHandler())
	closed.Close()

	for name, c := range map[string]struct {
		url  string
		want Kind
	}{
		"untrusted":   {secure.URL, KindCertificate},
		"plain":       {strings.Replace(plain.URL, "http:", "https:", 1), KindTLS},
		"refused":     {closed.URL, KindDial},
		"interrupted": {plain.URL, KindInterrupted},
		"slow":        {plain.URL + "/slow", KindTimeout},
	} {
		client := http.Client{Transport: &http.Transport{}, Timeout: 10 * time.Second}
		if name == "slow" {
			client.Timeout = 50 * time.Millisecond
		}
		resp, err := client.Get(c.url)
		client.CloseIdleConnections()
		if err == nil {
			_ = resp.Body.Close()
			t.Errorf("%s: no error", name)
			continue
		}
		if got := kindOf(err); got != c.want {
			t.Errorf("%s: kind %s, want %s: %v", name, got, c.want, err)
		}
	}

	for _, c := range []struct {
		err  error
		want Kind
	}{
		{fmt.Errorf("dial: %w", &net.DNSError{Err: "no such host", Name: "x"}), KindDNS},
		{x509.UnknownAuthorityError{}, KindCertificate},
		{fmt.Errorf("read: %w", tls.AlertError(40)), KindTLS},
		{context.DeadlineExceeded, KindTimeout},
		{io.ErrUnexpectedEOF, KindInterrupted},
	} {
		if got := kindOf(c.err); got != c.want || got.Remedy() == "" {
			t.Errorf("%v: kind %s, want %s", c.err, got, c.want)
		}
	}
}
