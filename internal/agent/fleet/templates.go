package fleet

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent"
	"github.com/buildyard/buildyard/internal/agent/cache"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv/sim"
	"github.com/buildyard/buildyard/internal/retry"
)

// templates is a cache that contains only names: a pull takes its time and moves no bytes. It is
// never full.
type templates struct {
	pullTime sim.DurationRange
	rand     seededRand

	mu         sync.Mutex // guards the fields below
	present    map[string]cache.Ref
	pinHolders map[string]map[string]struct{} // content ID -> holders
	pullCount  int                            // so far; part of the random draw
}

var _ agent.Templates = (*templates)(nil)

func newTemplates(takes sim.DurationRange, luck seededRand) *templates {
	return &templates{
		pullTime: takes, rand: luck, present: map[string]cache.Ref{}, pinHolders: map[string]map[string]struct{}{},
	}
}

// Has reports whether a version was "pulled".
func (t *templates) Has(contentID string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, ok := t.present[contentID]
	return ok
}

// Fetch waits; a failing pull fails half-way.
func (t *templates) Fetch(ctx context.Context, ref cache.Ref, progress func(float64)) error {
	if t.Has(ref.ContentID) {
		return nil
	}
	t.mu.Lock()
	t.pullCount++
	at, fails := t.rand.draw(fmt.Sprint(ref.ContentID, t.pullCount))
	t.mu.Unlock()
	const steps = 10
	takes := durationAt(t.pullTime, at)
	for i := range steps {
		if fails && i == steps/2 {
			return farm.Unavailable(nil, "Simulated failure of a pull")
		}
		if takes > 0 {
			if err := retry.Sleep(ctx, takes/steps); err != nil {
				return err
			}
			progress(float64(i+1) / steps)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.present[ref.ContentID] = ref
	return nil
}

// Pin adds a holder.
func (t *templates) Pin(contentID, holder string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pinHolders[contentID] == nil {
		t.pinHolders[contentID] = map[string]struct{}{}
	}
	t.pinHolders[contentID][holder] = struct{}{}
}

// Unpin removes a holder.
func (t *templates) Unpin(contentID, holder string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.pinHolders[contentID], holder)
	if len(t.pinHolders[contentID]) == 0 {
		delete(t.pinHolders, contentID)
	}
}

// Remove removes a version that is not in use.
func (t *templates) Remove(contentID string) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.pinHolders[contentID]) > 0 {
		return farm.Refused("Template version %s is in use by a VM", contentID)
	}
	delete(t.present, contentID)
	return nil
}

// Config returns the configuration of a small VM.
func (t *templates) Config(string) (config api.TemplateConfig, v cache.Version, err error) {
	return api.TemplateConfig{
		RAM: "2G", CPU: &api.ConfigCPU{Cores: 2}, HardDrives: []api.ConfigDrive{{File: "none.qcow2", Format: "qcow2"}},
		NetworkCards: []api.ConfigNIC{{PortRules: []api.ConfigPort{{RuleName: "ssh", GuestPort: 22}}}},
	}, cache.Version{Dir: "/nonexistent"}, nil
}

// Version fails: there are no files to make another version from.
func (t *templates) Version(string) (cache.Version, error) {
	return cache.Version{}, farm.Refused("A simulated node with simulated pulls has no files to save")
}

// AddLocal adds the version's name.
func (t *templates) AddLocal(_ context.Context, a cache.LocalVersion) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.present[a.Ref.ContentID] = a.Ref
	return nil
}

// EnsureFreeSpace does nothing: a simulated disk is never full.
func (t *templates) EnsureFreeSpace(context.Context, int64) error { return nil }

// List returns the names.
func (t *templates) List() []api.NodeTemplate {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := make([]api.NodeTemplate, 0, len(t.present))
	for id, ref := range t.present {
		list = append(list, api.NodeTemplate{ID: ref.TemplateID, Name: ref.Name, Tag: ref.Tag, ContentID: id})
	}
	slices.SortFunc(list, func(a, b api.NodeTemplate) int { return strings.Compare(a.ContentID, b.ContentID) })
	return list
}

// UsedBytes returns 0.
func (t *templates) UsedBytes() int64 { return 0 }
