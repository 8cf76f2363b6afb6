package cloud

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/cli"
)

// failing is a network on which every call fails.
type failing struct{ err error }

func (f failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.err }

// TestEndOfStatusWait: a wait for the services that times out names the last failure; an untrusted certificate ends it
// immediately.
func TestEndOfStatusWait(t *testing.T) {
	untrusted := &tls.CertificateVerificationError{Err: x509.UnknownAuthorityError{}}
	for name, tc := range map[string]struct {
		failure error
		code    int
		texts   []string
		waited  time.Duration
	}{
		"down": {errors.New("connection refused"), cli.ExitTimeout, []string{
			"timed out after 3s (--timeout): the controller at http://cloud.example cannot be reached: ",
			"check that it runs",
			"connection refused",
		}, 3 * time.Second},
		"untrusted": {untrusted, cli.ExitUnreachable, []string{"certificate not trusted; set its CA"}, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			api, err := client.NewController("http://cloud.example",
				client.Options{Retries: client.NoRetries, Transport: failing{tc.failure}})
			if err != nil {
				t.Fatal(err)
			}
			a, w, begin := &Command{API: api}, waitOptions{timeout: 3 * time.Second}, time.Now()
			err = w.waitWithTimeout(context.Background(), "", a.awaitRunning)
			err = WithAdvice(context.Background(), err, a.target())
			if err == nil || cli.CodeOf(err) != tc.code || time.Since(begin) != tc.waited {
				t.Fatalf("%s: exit code %d after %s, want %d after %s: %v", name, cli.CodeOf(err), time.Since(begin),
					tc.code, tc.waited, err)
			}
			for _, text := range tc.texts {
				if !strings.Contains(err.Error(), text) {
					t.Errorf("%s: %q does not contain %q", name, err, text)
				}
			}
		})
	}
}
