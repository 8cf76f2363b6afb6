package authstore

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/buildyard/buildyard/internal/auth"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
)

// unownedPartRetention is how long a part is kept for the change that it was made for.
const unownedPartRetention = 10 * time.Minute

// Grants is the grants of one service that all replicas share.
type Grants struct {
	store      *store.Store
	table      *grantTable
	service    farm.Service
	log        *slog.Logger
	changeSlot chan struct{} // a semaphore for the one call that changes the grants
	current    atomic.Pointer[auth.Grants]

	mu       sync.Mutex // held while now is computed; guards the fields below
	watchers []func()
}

var _ auth.GrantStore = (*Grants)(nil)

func newGrants(st *store.Store, table *grantTable, s farm.Service, log *slog.Logger) *Grants {
	g := &Grants{store: st, table: table, service: s, log: log, changeSlot: make(chan struct{}, 1)}
	g.current.Store(&auth.Grants{})
	return g
}

// Grants implements auth.GrantStore.
func (g *Grants) Grants() auth.Grants { return *g.current.Load() }

// Watch implements auth.GrantStore.
func (g *Grants) Watch(changed func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.watchers = append(g.watchers, changed)
}

// reloadAndNotify loads what is stored now, and calls the watchers.
func (g *Grants) reloadAndNotify() {
	for _, changed := range g.reload() {
		changed()
	}
}

// reload loads what is stored, and returns the watchers to call.
func (g *Grants) reload() []func() {
	g.mu.Lock()
	defer g.mu.Unlock()
	h := assembleGrants(g.table.Snapshot(), g.service)
	if h.damage != nil {
		g.log.Error("unreadable permission records ignored", "service", g.service, "error", h.damage)
	}
	g.current.Store(&h.grants)
	return g.watchers // it only ever grows
}

// checkReadable returns why what is stored cannot be used.
func (g *Grants) checkReadable() error {
	h := assembleGrants(g.table.Snapshot(), g.service)
	if h.damage != nil {
		return h.damage
	}
	if err := h.grants.Check(g.service); err != nil {
		return fmt.Errorf("stored permissions of the %s are invalid: %w", g.service, err)
	}
	return nil
}

// Change implements auth.GrantStore. All changes of a service's grants replace its record on the
// condition that it is unchanged since they began.
func (g *Grants) Change(ctx context.Context, do func(auth.Grants) (auth.Grants, error)) error {
	select {
	case g.changeSlot <- struct{}{}:
		defer func() { <-g.changeSlot }()
	case <-ctx.Done():
		return fmt.Errorf("wait to change permissions: %w", context.Cause(ctx))
	}
	for range maxTries {
		if err := g.store.Barrier(ctx); err != nil {
			return fmt.Errorf("read permissions: %w", err)
		}
		h := assembleGrants(g.table.Snapshot(), g.service)
		if h.damage != nil {
			return h.damage
		}
		next, err := do(h.grants)
		if err != nil {
			return err
		}
		if err := g.storeGrants(ctx, h, next); !errors.Is(err, store.ErrConflict) {
			return err
		}
	}
	return farm.Errorf(farm.CodeBusy, "Permission update conflict; retry")
}

// storeGrants replaces the stored grants.
func (g *Grants) storeGrants(ctx context.Context, h *storedGrants, next auth.Grants) (err error) {
	names := changedGroups(h.grants, next)
	if len(names) == 0 && next.Enforced == h.grants.Enforced {
		return nil
	}
	if err := selectGroups(next, names).Check(g.service); err != nil {
		return err
	}
	cond := store.IfRev(h.serviceRevision)
	changes := []store.Change{
		store.Put(g.table, string(g.service), newCachedRecord(grantRecord{Service: &serviceRecord{next.Enforced}}),
			cond),
	}
	var staged []string
	defer func() {
		if err != nil && !errors.Is(err, store.ErrUnknownOutcome) { // else they may be in use
			g.dropParts(ctx, staged)
		}
	}()
	for _, name := range names {
		record, parts, err := g.loadGroup(ctx, next, name)
		staged = append(staged, parts...)
		if err != nil {
			return err
		}
		changes = append(changes, g.groupChanges(h, name, record)...)
	}
	if most := g.store.Limits().MaxOps; len(changes) > most {
		return farm.Refused(
			"one request may not change %d permission groups; use several requests",
			len(names))
	}
	if err := g.store.Commit(ctx, changes...); err != nil {
		return fmt.Errorf("store permissions: %w", err)
	}
	staged = nil // they are in use
	return waitDelivered(ctx, g.store)
}

// groupChanges returns the changes that replace a group's record; nil removes it. The parts that it
// names must still exist.
func (g *Grants) groupChanges(h *storedGrants, name string, record *groupRecord) []store.Change {
	id := string(g.service) + groupDir + name
	var changes []store.Change
	if record == nil {
		changes = append(changes, store.Delete(g.table, id, store.Any))
	} else {
		changes = append(changes, store.Put(g.table, id, newCachedRecord(grantRecord{Group: record}), store.Any))
		for _, part := range record.Parts {
			_, rev, _ := g.table.Get(part)
			changes = append(changes, store.Check(g.table, part, store.IfRev(rev)))
		}
	}
	for _, part := range h.groupParts[name] {
		changes = append(changes, store.Delete(g.table, part, store.Any))
	}
	return changes
}

// loadGroup returns the record of a group, nil when it has nothing, and the parts that were stored for
// it. They are not read before a record names them.
func (g *Grants) loadGroup(
	ctx context.Context, next auth.Grants, name string,
) (record *groupRecord, parts []string, err error) {
	permissions, granted := next.Groups[name]
	resources, managed := next.Resources[name]
	if !granted && !managed {
		return nil, nil, nil
	}
	record = &groupRecord{}
	if granted {
		record.Permissions = append([]farm.Permission{}, permissions...)
	}
	if !managed {
		return record, nil, nil
	}
	lists, err := splitRights(resources)
	if err != nil {
		return nil, nil, err
	}
	if len(lists) == 1 {
		record.Resources = append([]farm.ResourcePermission{}, resources...)
		return record, nil, nil
	}
	for _, list := range lists {
		id := string(g.service) + partDir + rand.Text()
		parts = append(parts, id)
		part := grantRecord{Part: &partRecord{time.Now().UTC(), list}}
		if err := g.store.Commit(ctx, store.Put(g.table, id, newCachedRecord(part), store.IfAbsent)); err != nil {
			return nil, parts, fmt.Errorf("store resource rights: %w", err)
		}
	}
	record.Parts = parts
	return record, parts, nil
}

// dropParts removes parts that are not used after all. A sweep removes the rest.
func (g *Grants) dropParts(ctx context.Context, parts []string) {
	for _, id := range parts {
		_ = g.store.Commit(ctx, store.Delete(g.table, id, store.Any))
	}
}

// pruneParts removes parts whose change never came, and returns their number.
func (g *Grants) pruneParts(ctx context.Context, now time.Time) (n int, err error) {
	h := assembleGrants(g.table.Snapshot(), g.service)
	if h.damage != nil {
		return 0, nil // the parts of an unreadable record are unknown
	}
	for id, o := range h.unownedParts {
		if now.Sub(o.createdAt) < unownedPartRetention {
			continue
		}
		err := g.store.Commit(ctx,
			store.Delete(g.table, id, store.IfRev(o.revision)),
			store.Check(g.table, string(g.service), store.IfRev(h.serviceRevision))) // no change uses it since then
		switch {
		case err == nil:
			n++
		case !errors.Is(err, store.ErrConflict):
			return n, fmt.Errorf("remove outdated permission records: %w", err)
		}
	}
	return n, nil
}

// changedGroups names the groups in which grants differ, sorted.
func changedGroups(a, b auth.Grants) []string {
	names := map[string]bool{}
	for _, g := range []auth.Grants{a, b} {
		for name := range g.Groups {
			names[name] = true
		}
		for name := range g.Resources {
			names[name] = true
		}
	}
	maps.DeleteFunc(names, func(name string, _ bool) bool {
		inA, groupA := a.Groups[name]
		inB, groupB := b.Groups[name]
		onA, resourceA := a.Resources[name]
		onB, resourceB := b.Resources[name]
		return groupA == groupB && resourceA == resourceB && slices.Equal(inA, inB) &&
			slices.EqualFunc(onA, onB, sameResource)
	})
	return slices.Sorted(maps.Keys(names))
}

func sameResource(a, b farm.ResourcePermission) bool {
	return a.ID == b.ID && a.IDType == b.IDType && a.Type == b.Type && slices.Equal(a.Permissions, b.Permissions)
}

// selectGroups returns what some groups are granted.
func selectGroups(g auth.Grants, names []string) auth.Grants {
	out := auth.Grants{Groups: map[string][]farm.Permission{}, Resources: map[string][]farm.ResourcePermission{}}
	for _, name := range names {
		if list, ok := g.Groups[name]; ok {
			out.Groups[name] = list
		}
		if list, ok := g.Resources[name]; ok {
			out.Resources[name] = list
		}
	}
	return out
}
