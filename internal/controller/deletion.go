package controller

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

// deletionTime is how long a deletion without a recorded outcome may take.
const deletionTime = 2 * time.Minute

// DeleteTemplate removes a template with all versions from the registry. Its instances continue to
// run, and nodes keep their cached versions.
func (c *Controller) DeleteTemplate(ctx context.Context, id string) error {
	detail, err := c.allowed(ctx, id, toDelete) // nothing is recorded for a template that does not exist
	if err != nil {
		return err
	}
	id = detail.ID
	if c.Events == nil {
		return c.deleteAtRegistry(ctx, id)
	}
	d := &record.Deletion{Template: id, At: c.now(), By: c.Events.Actor(ctx)}
	note := settingDeletion + record.NewID()
	if err := c.store.Commit(ctx, store.Put(c.tables.Settings, note, &record.Setting{Deletion: d},
		store.IfAbsent)); err != nil {
		return err
	}
	err = c.deleteAtRegistry(ctx, id)
	if err == nil || farm.CodeOf(err) == farm.CodeNotFound { // else it may have been carried out
		if e := c.endDeletion(context.WithoutCancel(ctx), c.store, note, d, err == nil); e != nil {
			c.log.WarnContext(ctx, "recording the deletion of a template failed; retrying", "template",
				id, "error", e)
		}
	}
	return err
}

func (c *Controller) deleteAtRegistry(ctx context.Context, id string) error {
	if err := c.opts.Registry.Delete(ctx, id); err != nil {
		return registryError(err)
	}
	c.known.forget(strings.ToLower(id))
	return nil
}

// endDeletion removes the record of a deletion, and writes its event when the template is gone.
func (c *Controller) endDeletion(
	ctx context.Context, w store.Writer, note string, d *record.Deletion, gone bool,
) error {
	if gone {
		w = c.Events.With(w, func() farm.Event {
			return farm.Event{
				Name: farm.EventDeleteRegistryVM, Time: d.At, By: d.By,
				Extra: map[string]any{"template_id": d.Template},
			}
		})
	}
	return w.Commit(ctx, store.Delete(c.tables.Settings, note, store.Any))
}

// tidyDeletions ends the deletions without a recorded outcome: the registry knows it.
func (c *Controller) tidyDeletions(ctx context.Context, w *record.Term, now time.Time) error {
	for note, s := range c.tables.Settings.All() {
		if s.Deletion == nil || now.Sub(s.Deletion.At) < deletionTime {
			continue
		}
		_, err := c.Template(ctx, s.Deletion.Template)
		gone := farm.CodeOf(err) == farm.CodeNotFound
		if err != nil && !gone {
			return err
		}
		if err := c.endDeletion(ctx, w, note, s.Deletion, gone); err != nil {
			return err
		}
	}
	return nil
}
