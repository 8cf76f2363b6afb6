package fault

import (
	"slices"
	"time"

	"github.com/buildyard/buildyard/api"
)

// ledger is what the calls so far promise. It grows with the instances, not with the
// calls about them.
type ledger struct {
	lives   map[string]*life         // instance -> its history
	creates map[string][]string      // external id -> the instances that were acknowledged; nil: nothing was
	told    map[string]time.Duration // save request -> when a look first showed that it is done
}

func newLedger() *ledger {
	return &ledger{lives: map[string]*life{}, creates: map[string][]string{}, told: map[string]time.Duration{}}
}

// lives collects what the calls of a history promise.
func lives(calls []call, requests []api.SaveImage) map[string]*life {
	book := ledgerOf(calls)
	book.save(requests)
	return book.lives
}

func ledgerOf(calls []call) *ledger {
	book := newLedger()
	for _, c := range calls {
		book.note(c)
	}
	return book
}

// get returns the life of an instance, a new one when it has no history.
func (b *ledger) get(id string) *life {
	if b.lives[id] == nil {
		b.lives[id] = &life{
			created: never, asked: never, agreed: never, started: never, gone: never, saving: never,
			told: never,
		}
	}
	return b.lives[id]
}

// isRepeated reports whether a create or a termination was sent before. Its response may be of the earlier call.
func (b *ledger) isRepeated(c call) bool {
	switch c.Op {
	case opCreate:
		_, known := b.creates[c.ExternalID]
		return known
	case opTerminate:
		return slices.ContainsFunc(c.Instances, func(id string) bool { return b.get(id).asked != never })
	}
	return false
}

// note adds one call.
func (b *ledger) note(c call) {
	switch {
	case c.Op == opCreate && c.Acked:
		b.creates[c.ExternalID] = c.Instances
	case c.Op == opCreate && b.creates[c.ExternalID] == nil:
		b.creates[c.ExternalID] = nil // it may have come through
	case c.Op == opRequest && c.State == saveDone && b.told[c.Request] == 0:
		b.told[c.Request] = c.End
	}
	for _, id := range c.Instances {
		l := b.get(id)
		switch {
		case c.Op == opSave && !c.Refused:
			l.saving = min(l.saving, c.Begin)
		case c.Op == opCreate && c.Acked:
			l.created, l.external = min(l.created, c.End), c.ExternalID
		case c.Op == opTerminate:
			l.asked = min(l.asked, c.Begin)
			if c.Acked {
				l.agreed = min(l.agreed, c.End)
			}
		}
	}
}

// save adds what the save requests have come to in the end.
func (b *ledger) save(requests []api.SaveImage) {
	for _, r := range requests {
		if r.Status != saveDone {
			continue
		}
		l := b.get(r.Request.InstanceID)
		l.saved = true
		if end := b.told[r.ID]; end != 0 {
			l.told = min(l.told, end)
		}
	}
}
