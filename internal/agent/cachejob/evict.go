package cachejob

import (
	"context"
	"fmt"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// maxReasons is how many reasons the status of a removal has.
const maxReasons = 5

// removeVersions removes the unused versions of a template; versions that are being pulled are not in the
// cache yet.
func (r *Runner) removeVersions(ctx context.Context, e *job) {
	removed, kept := 0, 0
	var why []string                              // the versions stay
	for more := true; more && ctx.Err() == nil; { // a version may be based on another one
		more, kept, why = false, 0, nil
		for _, v := range r.opts.Templates.List() {
			if !strings.EqualFold(v.ID, e.order.TemplateID) {
				continue
			}
			switch err := r.opts.Templates.Remove(v.ContentID); {
			case err == nil:
				removed++
				more = true
			case farm.CodeOf(err) != farm.CodeNotFound:
				kept++
				why = append(why, err.Error())
			}
		}
	}
	if ctx.Err() != nil {
		return
	}
	r.opts.Logger.Info("unused versions of a template removed from the cache", "cache_job", e.order.ID, "template",
		e.order.TemplateID,
		"removed", removed, "kept", kept)
	r.endJob(e, func(e *job) {
		e.stage, e.removedVersions, e.keptVersions = api.CacheJobDone, removed, kept
		if kept > 0 {
			e.stage, e.message = api.CacheJobFailed, fmt.Sprintf("%d of its versions stay: %s", kept,
				strings.Join(why[:min(len(why), maxReasons)], "; "))
		}
	})
}
