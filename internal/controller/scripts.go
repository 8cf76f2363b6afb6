package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// Script is the startup script of the instances of one request. It is written in the transactions
// that create them and deleted with the last of them. The table in memory does not keep its text.
type Script struct {
	Caller string `json:"caller,omitempty"` // the caller whose limits it counts against
	Size   int    `json:"size"`             // bytes of Text
	Text   []byte `json:"text,omitempty"`   // any bytes; a secret
}

const (
	kindScript = store.Kind("b")
	byScript   = "script" // index of instances
)

func newScriptTable() *store.Table[Script] {
	return store.NewTable(kindScript, store.WithPart(func(s *Script) *Script {
		return &Script{Caller: s.Caller, Size: s.Size}
	}),
		store.WithSums(scriptsOf, func(s *Script) (string, store.Amounts) { return s.Caller, store.Amounts{s.Size} }),
		store.WithSums(scriptsAll, func(s *Script) (string, store.Amounts) { return allCallers, store.Amounts{s.Size} }))
}

// separateScript removes the script from a request. It returns the change that stores it; none
// without a script.
func (c *Controller) separateScript(req *StartRequest) []store.Change {
	o := &req.Options
	if len(o.Script) == 0 {
		return nil
	}
	script := &Script{Caller: req.Caller, Size: len(o.Script), Text: o.Script}
	o.Script, o.ScriptID = nil, newID()
	return []store.Change{store.Put(c.tables.Scripts, o.ScriptID, script, store.Any)}
}

// scriptText reads the startup script of an instance; nil when it has none.
func (c *Controller) scriptText(ctx context.Context, inst *farm.Instance) ([]byte, error) {
	id := inst.Options.ScriptID
	if id == "" { // records of older releases have it themselves
		return inst.Options.Script, nil
	}
	script, err := c.tables.Scripts.Load(ctx, id)
	if err != nil {
		return nil, err
	}
	if script == nil {
		return nil, fmt.Errorf("script %s is not in the store", id)
	}
	return script.Text, nil
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
	for other := range c.tables.Instances.Where(byScript, id) {
		if other != except {
			return true
		}
	}
	return false
}

// tidyScripts deletes the scripts that no instance has any longer: when instances that share a
// script end at the same time, none of them deletes it.
func (c *Controller) tidyScripts(ctx context.Context, w *leaderTerm, _ time.Time) error {
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
