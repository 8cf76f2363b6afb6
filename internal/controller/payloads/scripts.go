package payloads

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/buildyard/buildyard/internal/controller/record"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// Payloads are the large contents of a cloud.
type Payloads struct {
	db        record.DB
	maxOutput int // bytes of the output of all saves
}

// New returns the contents in a database. maxOutput bounds the bytes of the output of all saves; 0:
// DefaultMaxOutput.
func New(db record.DB, maxOutput int) *Payloads {
	if maxOutput == 0 {
		maxOutput = DefaultMaxOutput
	}
	return &Payloads{db, maxOutput}
}

// SeparateScript replaces the startup script in the options of a start by its id. It returns the
// change that stores the script; none without one.
func (p *Payloads) SeparateScript(o *farm.StartOptions, caller string) []store.Change {
	if len(o.Script) == 0 {
		return nil
	}
	script := &record.Script{Caller: caller, Size: len(o.Script), Text: o.Script}
	o.Script, o.ScriptID = nil, record.NewID()
	return []store.Change{store.Put(p.db.Tables.Scripts, o.ScriptID, script, store.Any)}
}

// Script returns the startup script of an instance.
func (p *Payloads) Script(ctx context.Context, inst *farm.Instance) ([]byte, error) {
	id := inst.Options.ScriptID
	if id == "" { // records of older releases have it themselves
		return inst.Options.Script, nil
	}
	script, err := p.db.Tables.Scripts.LoadFull(ctx, id)
	if err != nil {
		return nil, err
	}
	if script == nil {
		return nil, fmt.Errorf("startup script %s not found in the store", id)
	}
	return script.Text, nil
}

// DeleteScript returns the change that deletes the script of an instance that is removed, unless
// others have the same one. It fails with a conflict when another instance with it is created
// concurrently.
func (p *Payloads) DeleteScript(inst *farm.Instance) []store.Change {
	id := inst.Options.ScriptID
	if id == "" {
		return nil
	}
	_, rev, ok := p.db.Tables.Scripts.Get(id)
	p.db.Store.WaitConsistent() // the instances were written together with the script
	if !ok || p.scriptUsed(id, inst.ID) {
		return nil
	}
	return []store.Change{store.Delete(p.db.Tables.Scripts, id, store.IfRev(rev))}
}

// scriptUsed reports whether an instance other than except has a script.
func (p *Payloads) scriptUsed(id, except string) bool {
	for other := range p.db.Tables.Instances.Where(record.ByScript, id) {
		if other != except {
			return true
		}
	}
	return false
}

// PruneScripts deletes the scripts that no instance has any longer: when instances that share a
// script end at the same time, none of them deletes it.
func (p *Payloads) PruneScripts(ctx context.Context, w *record.Term, _ time.Time) error {
	view := p.db.Tables.Scripts.Snapshot()
	p.db.Store.WaitConsistent() // the instances were written together with the scripts
	for id := range view.All() {
		if p.scriptUsed(id, "") {
			continue
		}
		_, rev, _ := view.Get(id)
		err := w.Commit(ctx, store.Delete(p.db.Tables.Scripts, id, store.IfRev(rev)))
		if err != nil && !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return nil
}
