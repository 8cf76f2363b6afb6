package templates

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/controller/record/recordtest"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/store"
	"github.com/buildyard/buildyard/internal/transfer"
)

const templateID = "11111111-2222-4333-8444-555555555555"

// fakeRegistry is a registry with one template.
type fakeRegistry struct {
	mu      sync.Mutex
	detail  api.TemplateDetail
	deleted bool
	down    bool
}

var _ Registry = (*fakeRegistry)(nil)

// newFakeRegistry returns a registry whose template has two versions.
func newFakeRegistry() *fakeRegistry {
	d := api.TemplateDetail{Template: api.Template{ID: templateID, Name: "base", Arch: "amd64"}}
	for n := range 2 {
		d.Versions = append(d.Versions, api.TemplateVersion{
			Tag: fmt.Sprintf("v%d", n+1), Number: n, ContentID: fmt.Sprintf("content-%d", n), Arch: "amd64", Size: 100,
		})
	}
	return &fakeRegistry{detail: d}
}

func (r *fakeRegistry) setDown(down bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.down = down
}

func (r *fakeRegistry) setDeleted(deleted bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deleted = deleted
}

func (r *fakeRegistry) fail() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down {
		return errors.New("connection refused")
	}
	return nil
}

func (r *fakeRegistry) ListTemplates(context.Context) ([]api.Template, error) {
	return []api.Template{r.detail.Template}, r.fail()
}

func (r *fakeRegistry) TemplateDetail(_ context.Context, id string) (api.TemplateDetail, error) {
	if err := r.fail(); err != nil {
		return api.TemplateDetail{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if id != templateID || r.deleted {
		return api.TemplateDetail{}, farm.NotFound()
	}
	return r.detail, nil
}

func (r *fakeRegistry) VersionConfig(context.Context, transfer.VersionRef) (api.TemplateConfig, error) {
	return api.TemplateConfig{RAM: "512M", CPU: &api.ConfigCPU{Cores: 1}}, r.fail()
}

func (r *fakeRegistry) DiskInfo(context.Context) (api.DiskInfo, error) {
	return api.DiskInfo{}, r.fail()
}

func (r *fakeRegistry) DeleteTemplate(_ context.Context, id string) error {
	if id != templateID {
		return farm.NotFound()
	}
	return r.fail()
}

func (r *fakeRegistry) Revert(context.Context, transfer.VersionRef) error { return r.fail() }

// noEvents are events that are off.
type noEvents struct{}

var _ Events = noEvents{}

func (noEvents) Enabled() bool                                         { return false }
func (noEvents) Actor(context.Context) farm.Actor                      { return farm.Actor{} }
func (noEvents) With(w store.Writer, _ func() farm.Event) store.Writer { return w }

// open returns the templates of a registry in an empty database.
func open(t *testing.T, r *fakeRegistry, rights RightsQuery) *Templates {
	t.Helper()
	return New(recordtest.Open(t), Options{
		Registry: r, Rights: rights, Events: noEvents{}, IsLeader: func() bool { return true },
	})
}

// TestRemovedContents: a revert removes the contents that no older version has.
func TestRemovedContents(t *testing.T) {
	var d api.TemplateDetail
	for n, content := range []string{"a", "b", "a", "c"} {
		d.Versions = append(d.Versions, api.TemplateVersion{Number: n, ContentID: content})
	}
	for number, want := range [][]string{{"a", "b", "a", "c"}, {"b", "c"}, {"c"}, {"c"}, {}} {
		if got := removedContents(d, number); !slices.Equal(got, want) {
			t.Errorf("from %d: %q, want %q", number, got, want)
		}
	}
}
