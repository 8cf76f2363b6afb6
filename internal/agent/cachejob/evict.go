package cachejob

import (
	"context"
	"fmt"
	"strings"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
)

// remove removes the unused versions of a template; versions that are being pulled are not in the
// cache yet.
func (r *Runner) remove(ctx context.Context, e *job) {
	removed, kept := 0, 0
	var why error
	for more := true; more && ctx.Err() == nil; { // a version may be based on another one
		more, kept = false, 0
		for _, v := range r.o.Templates.List() {
			if !strings.EqualFold(v.ID, e.order.TemplateID) {
				continue
			}
			switch err := r.o.Templates.Remove(v.ContentID); {
			case err == nil:
				removed++
				more = true
			case farm.CodeOf(err) != farm.CodeNotFound:
				kept++
				why = err
			}
		}
	}
	if ctx.Err() != nil {
		return
	}
	r.o.Logger.Info("unused versions of a template removed from the cache", "cache_job", e.order.ID, "template",
		e.order.TemplateID,
		"removed", removed, "kept", kept)
	r.end(e, func(e *job) {
		e.stage, e.removed, e.kept = api.CacheJobDone, removed, kept
		if kept > 0 {
			e.stage, e.message = api.CacheJobFailed, fmt.Sprintf("%d of its versions stay: %v", kept, why)
		}
	})
}
