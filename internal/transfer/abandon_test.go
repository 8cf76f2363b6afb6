package transfer_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/buildyard/buildyard/internal/transfer"
)

// TestPushAbandoned: a canceled push leaves nothing at the registry if its caller abandons it, and can be
// resumed if not.
func TestPushAbandoned(t *testing.T) {
	for name, abandon := range map[string]func(error) bool{
		"abandoned": func(error) bool { return true }, "kept": func(error) bool { return false }, "not asked": nil,
	} {
		base := t.TempDir()
		s := serve(t, base)
		ctx, cancel := context.WithCancel(t.Context())
		disturb := func(w http.ResponseWriter, r *http.Request, h http.Handler) {
			if r.URL.Query().Has("off") {
				cancel()
				_, _ = io.Copy(io.Discard, r.Body) // until the client has disconnected
				panic(http.ErrAbortHandler)
			}
			h.ServeHTTP(w, r)
		}
		s.disturb.Store(&disturb)
		o := pushOptions("v1", threeFiles(t)...)
		o.AbandonOnFailure = abandon
		c, err := transfer.New(transfer.Options{BaseURL: s.URL})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Push(ctx, o); err == nil {
			t.Fatalf("%s: the push was not cut", name)
		}
		c.Close()
		left, err := os.ReadDir(filepath.Join(base, "upload_dir"))
		if err != nil || (len(left) == 0) != (name == "abandoned") {
			t.Errorf("%s: the registry keeps %v, %v", name, left, err)
		}
		s.stop()
	}
}
