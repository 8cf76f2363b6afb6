package controller

import (
	"context"
	"errors"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// separateScript removes the script from a request. It returns the change that stores it; none
// without a script.
func (c *Controller) separateScript(req *StartRequest) []store.Change {
	o := &req.Options
	if len(o.Script) == 0 {
		return nil
	}
	script := &record.Script{Caller: req.Caller, Size: len(o.Script), Text: o.Script}
	o.Script, o.ScriptID = nil, record.NewID()
	return []store.Change{store.Put(c.tables.Scripts, o.ScriptID, script, store.Any)}
}

// dropScript returns the change that deletes the script of an instance that is removed, unless
// others have the same one. It fails with a conflict when another instance with it is created
// concurrently.
func (c *Controller) dropScript(inst *farm.Instance) []store.Change {
	id := inst.Options.ScriptID
	if id == "" {
		return nil
	}
	_, rev, ok := c.tables.Scripts.Get(id)
	c.store.WaitConsistent() // the instances were written together with the script
	if !ok || c.scriptUsed(id, inst.ID) {
		return nil
	}
	return []store.Change{store.Delete(c.tables.Scripts, id, store.IfRev(rev))}
}

// scriptUsed reports whether an instance other than except has a script.
func (c *Controller) scriptUsed(id, except string) bool {
	for other := range c.tables.Instances.Where(record.ByScript, id) {
		if other != except {
			return true
		}
	}
	return false
}

// tidyScripts deletes the scripts that no instance has any longer: when instances that share a
// script end at the same time, none of them deletes it.
func (c *Controller) tidyScripts(ctx context.Context, w *record.Term, _ time.Time) error {
	view := c.tables.Scripts.Snapshot()
	c.store.WaitConsistent() // the instances were written together with the scripts
	for id := range view.All() {
		if c.scriptUsed(id, "") {
			continue
		}
		_, rev, _ := view.Get(id)
		err := w.Commit(ctx, store.Delete(c.tables.Scripts, id, store.IfRev(rev)))
		if err != nil && !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return nil
}
