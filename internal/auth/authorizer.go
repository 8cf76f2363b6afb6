package auth

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/buildyard/buildyard/internal/farm"
)

// GrantStore stores the grants of a service permanently. Reads are from memory and see a change
// before the call that made it returns.
type GrantStore interface {
	// Grants returns all grants.
	Grants() Grants
	// Change replaces the grants by the result of do, unless do fails. It may call do again after a
	// concurrent change.
	Change(ctx context.Context, do func(Grants) (Grants, error)) error
	// Watch registers a function that is called after each change, by whichever replica. It must
	// not block.
	Watch(changed func())
}

// GrantTable is a GrantStore in memory.
type GrantTable struct {
	save   func(Grants) error
	grants atomic.Pointer[Grants]

	mu       sync.Mutex // of changes; guards the fields below
	watchers []func()
}

var _ GrantStore = (*GrantTable)(nil)

// NewGrantTable returns a table with the given grants. save makes all of them durable before a
// change is visible; nil: nothing is durable.
func NewGrantTable(g Grants, save func(Grants) error) *GrantTable {
	t := &GrantTable{save: save}
	t.grants.Store(&g)
	return t
}

// Grants implements GrantStore.
func (t *GrantTable) Grants() Grants { return *t.grants.Load() }

// Change implements GrantStore.
func (t *GrantTable) Change(_ context.Context, do func(Grants) (Grants, error)) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	g, err := do(t.Grants())
	if err != nil {
		return err
	}
	if t.save != nil {
		if err := t.save(g); err != nil {
			return err
		}
	}
	t.grants.Store(&g)
	for _, changed := range t.watchers {
		changed()
	}
	return nil
}

// Watch implements GrantStore.
func (t *GrantTable) Watch(changed func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watchers = append(t.watchers, changed)
}

// Authorizer holds the current rules. Changes apply to the next request, whatever its session.
type Authorizer struct {
	store GrantStore
	rules atomic.Pointer[Rules]

	mu             sync.Mutex // guards the fields below
	policy         Policy
	enforcedBefore bool // permissions are enforced, or were enforced before

	watchersMu sync.Mutex // guards the fields below
	watchers   []func()
}

// NewAuthorizer returns an Authorizer for a policy and the grants of a store, whose changes it follows.
func NewAuthorizer(p Policy, store GrantStore) *Authorizer {
	j := &Authorizer{store: store, policy: p}
	store.Watch(j.rebuildAndNotify) // before it reads: no change may come in between
	j.rebuildAndNotify()
	return j
}

// Rules returns the current rules.
func (j *Authorizer) Rules() *Rules { return j.rules.Load() }

// Watch registers a function that is called after each change of the rules. It must not block.
func (j *Authorizer) Watch(changed func()) {
	j.watchersMu.Lock()
	defer j.watchersMu.Unlock()
	j.watchers = append(j.watchers, changed)
}

// SetTier changes the tier of the license. What was denied stays denied.
func (j *Authorizer) SetTier(t farm.Tier) {
	j.mu.Lock()
	j.policy.Tier = t
	j.mu.Unlock()
	j.rebuildAndNotify()
}

// rebuildAndNotify computes the rules again, and calls the watchers.
func (j *Authorizer) rebuildAndNotify() {
	j.rebuildRules()
	j.watchersMu.Lock()
	defer j.watchersMu.Unlock()
	for _, changed := range j.watchers {
		changed()
	}
}

func (j *Authorizer) rebuildRules() {
	j.mu.Lock()
	defer j.mu.Unlock()
	g := j.store.Grants()
	g.Enforced = g.Enforced || j.enforcedBefore // the store may not have received it yet
	g, _ = j.policy.Latch(g)
	j.enforcedBefore = g.Enforced
	j.rules.Store(NewRules(j.policy, g))
}

// StoreEnforcement stores whether permissions were enforced, so that no license grants anything after a
// restart. It is called after NewAuthorizer and SetTier, and repeated when it fails.
func (j *Authorizer) StoreEnforcement(ctx context.Context) error {
	want := j.Rules().Enforced()
	if j.store.Grants().Enforced == want {
		return nil
	}
	return j.store.Change(ctx, func(g Grants) (Grants, error) {
		g.Enforced = want
		return g, nil
	})
}
