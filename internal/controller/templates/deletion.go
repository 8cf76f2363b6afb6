package templates

import (
	"context"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// settingDeletion begins the ids of these records: each request has its own record.
const settingDeletion = "deletion-"

// deletionTimeout is how long a deletion without a recorded outcome may take.
const deletionTimeout = 2 * time.Minute

// Delete removes a template with all versions from the registry. Its instances continue to run, and
// nodes keep their cached versions.
func (t *Templates) Delete(ctx context.Context, id string) error {
	detail, err := t.allowed(ctx, id, deleteRight) // nothing is recorded for a template that does not exist
	if err != nil {
		return err
	}
	id = detail.ID
	if !t.opts.Events.Enabled() {
		return t.deleteAtRegistry(ctx, id)
	}
	d := &record.Deletion{Template: id, At: t.db.Now(), By: t.opts.Events.Actor(ctx)}
	key := settingDeletion + record.NewID()
	if err := t.db.Store.Commit(ctx, store.Put(t.db.Tables.Settings, key, &record.Setting{Deletion: d},
		store.IfAbsent)); err != nil {
		return err
	}
	err = t.deleteAtRegistry(ctx, id)
	if err == nil || farm.CodeOf(err) == farm.CodeNotFound { // else it may have been carried out
		if e := t.endDeletion(context.WithoutCancel(ctx), t.db.Store, key, d, err == nil); e != nil {
			t.db.Log.WarnContext(ctx, "recording the deletion of a template failed; retrying",
				"template",
				id, "error", e)
		}
	}
	return err
}

func (t *Templates) deleteAtRegistry(ctx context.Context, id string) error {
	if err := t.opts.Registry.DeleteTemplate(ctx, id); err != nil {
		return registryError(err)
	}
	t.known.remove(strings.ToLower(id))
	t.removed(ctx, strings.ToLower(id), nil)
	return nil
}

// endDeletion removes the record of a deletion, and writes its event when the template is gone.
func (t *Templates) endDeletion(
	ctx context.Context, w store.Writer, key string, d *record.Deletion, gone bool,
) error {
	if gone {
		w = t.opts.Events.With(w, func() farm.Event {
			return farm.Event{
				Name: farm.EventDeleteRegistryVM, Time: d.At, Actor: d.By,
				Extra: map[string]any{"template_id": d.Template},
			}
		})
	}
	return w.Commit(ctx, store.Delete(t.db.Tables.Settings, key, store.Any))
}

// PruneDeletions ends the deletions without a recorded outcome: the registry knows it.
func (t *Templates) PruneDeletions(ctx context.Context, w *record.Term, now time.Time) error {
	for key, s := range t.db.Tables.Settings.All() {
		if s.Deletion == nil || now.Sub(s.Deletion.At) < deletionTimeout {
			continue
		}
		_, err := t.Get(ctx, s.Deletion.Template)
		gone := farm.CodeOf(err) == farm.CodeNotFound
		if err != nil && !gone {
			return err
		}
		if err := t.endDeletion(ctx, w, key, s.Deletion, gone); err != nil {
			return err
		}
	}
	return nil
}
