package authfile

import (
	"context"
	"time"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/periodic"
)

// pruneInterval is the interval between checks for old records.
const pruneInterval = time.Hour

// Jobs returns the background jobs for the keys of a directory. Used nonces need none.
func (f *Dir) Jobs(keys *auth.APIKeys, signer *auth.Signer) []periodic.Job {
	return []periodic.Job{
		{What: "API keys that have expired", Every: pruneInterval, Do: func(ctx context.Context) error {
			_, err := keys.PruneExpired(ctx)
			return err
		}},
		{What: "signing keys", Every: pruneInterval, Do: func(context.Context) error { return f.rotateKeys(signer) }},
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
	signer.ReplaceRing(next)
	return nil
}
