package authfile

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/periodic"
)

// TestJobs lets two months elapse.
func TestJobs(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		f := openFolder(t, dir)
		table, err := f.Keys()
		must(t, err)
		must(t, table.Create(t.Context(), farm.APIKey{ID: "ci", Generation: "g", Expires: time.Now().Add(time.Hour)}))
		ring, err := f.Ring()
		must(t, err)
		signer := auth.NewSigner(ring)
		first := signer.Sign("p", nil)

		ctx, cancel := context.WithTimeout(t.Context(), 2*auth.RotationAge+3*time.Hour)
		defer cancel()
		periodic.Run(ctx, f.Jobs(auth.NewAPIKeys(table), signer), slog.New(slog.DiscardHandler))

		if list := table.List(); len(list) != 0 {
			t.Errorf("left are %v", list)
		}
		last := signer.Sign("p", nil)
		if last[:6] == first[:6] {
			t.Error("the first key signs still")
		}
		stored, err := openFolder(t, dir).Ring()
		must(t, err)
		if _, err := auth.NewSigner(stored).Verify("p", last, time.Hour); err != nil {
			t.Errorf("what is signed is not good after a restart: %v", err)
		}
		raw, err := stored.Encode()
		must(t, err)
		if !strings.Contains(string(raw), `"version":3`) || strings.Contains(string(raw), `"version":4`) {
			t.Error("there were not two rotations")
		}
		if _, err := signer.Verify("p", first, 100*24*time.Hour); err == nil {
			t.Error("the first key is believed for ever")
		}
	})
}
