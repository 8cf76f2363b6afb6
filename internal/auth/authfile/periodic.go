package authfile

import (
	"context"
	"time"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/periodic"
)

// seldom is the interval between checks for old records.
const seldom = time.Hour

// Jobs returns the background jobs for the keys of a directory. Used nonces need none.
func (f *Dir) Jobs(keys *auth.Keys, signer *auth.Signer) []periodic.Job {
	return []periodic.Job{
		{What: "API keys that have expired", Every: seldom, Do: func(ctx context.Context) error {
			_, err := keys.Sweep(ctx)
			return err
		}},
		{What: "signing keys", Every: seldom, Do: func(context.Context) error { return f.rotateKeys(signer) }},
	}
}

// rotateKeys rotates signing keys that are old.
func (f *Dir) rotateKeys(signer *auth.Signer) error {
	ring, err := f.Ring()
	if err != nil || !ring.NeedsRotation(time.Now()) {
		return err
	}
	next := ring.Rotated(time.Now())
	if err := f.SaveRing(next); err != nil {
		return err
	}
	signer.Replace(next)
	return nil
}
