package registry

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/layout"
)

// Ref names a version of a template; with nothing but ID it is the latest.
type Ref struct {
	ID        string // template UUID
	Tag       string
	Number    *int   // 0-indexed
	ContentID string // only used by Manifest
}

// List returns all templates, by name.
func (r *Registry) List() []api.Template {
	snap := r.snap.Load()
	out := make([]api.Template, 0, len(snap.order))
	for _, e := range snap.order {
		t := e.item()
		if n := len(e.t.Versions); n > 0 {
			t.LatestTag, t.VersionCount = e.t.Versions[n-1].Tag, n
		}
		out = append(out, t)
	}
	return out
}

func (e *entry) item() api.Template {
	return api.Template{
		ID: e.t.ID, Name: e.t.Name, Size: e.size, Arch: e.t.Arch,
		LastPull: e.pulls.newest.Load(), LastPush: e.lastPush,
	}
}

// Detail returns one template with its versions.
func (r *Registry) Detail(id string) (api.TemplateDetail, error) {
	e, err := r.lookup(id)
	if err != nil {
		return api.TemplateDetail{}, err
	}
	out := api.TemplateDetail{Template: e.item(), Versions: make([]api.TemplateVersion, 0, len(e.t.Versions))}
	for i := range e.t.Versions {
		v := e.version(&e.t.Versions[i])
		v.Scan = e.scans.summary(v.ContentID)
		out.Versions = append(out.Versions, v)
	}
	return out, nil
}

func (e *entry) version(v *layout.Version) api.TemplateVersion {
	out := api.TemplateVersion{
		Tag: v.Tag, Number: v.Number, Description: v.Description,
		Images: v.Images(), StateFiles: v.StateFiles(), ConfigFile: layout.ConfigName(e.t.ID),
		Size: v.Size(), Increment: e.added[v.Number], Arch: v.Arch, CreationDate: v.Created, LastPush: v.LastPush,
		LastPull: e.pulls.of(v.ContentID), ContentID: v.ContentID,
	}
	if n := len(out.StateFiles); n > 0 {
		out.StateFile = out.StateFiles[n-1]
	}
	if v.NVRAM {
		out.NVRAM = nvramName
	}
	return out
}

const nvramName = "nvram"

// Info returns a version's configuration object as JSON.
func (r *Registry) Info(ref Ref) (json.RawMessage, error) {
	return onVersion(r, ref, func(e *entry, v *layout.Version) (json.RawMessage, error) {
		config, err := r.dir.Config(e.t.ID, v)
		return config, unreadable(e, v, err)
	})
}

// unreadable describes a version whose directory cannot be read, and names the remedy; nil without err.
func unreadable(e *entry, v *layout.Version, err error) error {
	if err == nil {
		return nil
	}
	return &farm.Error{Code: farm.CodeRefused, Err: err, Message: fmt.Sprintf(
		"Version %d of template %s is damaged: its configuration or nvram cannot be read; \"buildyard registry "+
			"check\" says more", v.Number, e.t.Name)}
}

// onVersion reads something of a version from disk. The version may be reverted after the snapshot was loaded:
// it retries as long as a failure coincides with a newer snapshot of the template.
func onVersion[T any](r *Registry, ref Ref, read func(*entry, *layout.Version) (T, error)) (T, error) {
	for {
		var none T
		e, v, err := r.resolve(ref)
		if err != nil {
			return none, err
		}
		out, err := read(e, v)
		if err == nil {
			return out, nil
		}
		if again, _ := r.lookup(ref.ID); again == e {
			return none, err
		}
	}
}

// lookup finds a template. An ID that is not a UUID is reported as unknown like any other.
func (r *Registry) lookup(id string) (*entry, error) {
	clean, _ := layout.ParseID(id)
	e := r.snap.Load().templates[clean]
	if e == nil {
		return nil, r.unknown(clean)
	}
	return e, nil
}

// unknown returns why a template was not found: it is damaged as a whole, or never existed.
func (r *Registry) unknown(id string) error {
	for _, d := range r.snap.Load().damaged {
		if d.ID == id && d.Number < 0 {
			return farm.Refused(
				"Template %s is damaged: %s; run \"buildyard registry repair\" at the registry, and push it again",
				id, d.Problem)
		}
	}
	return farm.NotFound()
}

// resolve finds a version. Tag and number, when both are given, must agree.
func (r *Registry) resolve(ref Ref) (*entry, *layout.Version, error) {
	e, err := r.lookup(ref.ID)
	if err != nil {
		return nil, nil, err
	}
	i, err := find(e.t.Versions, ref)
	if err != nil {
		return nil, nil, err
	}
	return e, &e.t.Versions[i], nil
}

// find returns the position of a version among those of its template.
func find(versions []layout.Version, ref Ref) (int, error) {
	for i := len(versions) - 1; i >= 0; i-- {
		v := &versions[i]
		tag := ref.Tag == "" || v.Tag == ref.Tag
		number := ref.Number == nil || v.Number == *ref.Number
		content := ref.ContentID == "" || v.ContentID == ref.ContentID
		if tag && number && content {
			return i, nil
		}
	}
	return 0, noVersion(versions, ref)
}

// noVersion returns why a version was not found: it is unknown, or its tag and number disagree.
func noVersion(versions []layout.Version, ref Ref) error {
	tagged := slices.IndexFunc(versions, func(v layout.Version) bool { return ref.Tag != "" && v.Tag == ref.Tag })
	switch {
	case tagged >= 0 && ref.Number != nil && *ref.Number != tagged:
		return farm.Errorf(farm.CodeNoVersion,
			"Did not find any versions with tag %s and number %d: tag %s is version %d",
			ref.Tag, *ref.Number, ref.Tag, tagged)
	case tagged >= 0:
		return farm.Errorf(farm.CodeNoVersion,
			"Did not find any versions with tag %s and that content id: tag %s has %s",
			ref.Tag, ref.Tag, versions[tagged].ContentID)
	case ref.Tag != "":
		return farm.Errorf(farm.CodeNoVersion, "Did not find any versions with tag %s", ref.Tag)
	case ref.Number != nil:
		return farm.Errorf(farm.CodeNoVersion, "Did not find any versions with number %d", *ref.Number)
	case ref.ContentID != "":
		return farm.Errorf(farm.CodeNoVersion, "Did not find any versions with content id %s", ref.ContentID)
	}
	return farm.Errorf(farm.CodeNoVersion, "Did not find any versions")
}

// Disk returns the space of the store.
func (r *Registry) Disk(ctx context.Context) (api.DiskInfo, error) {
	free, total, err := r.store.Space(ctx)
	if err != nil {
		return api.DiskInfo{}, unreachable(err)
	}
	out := api.DiskInfo{Free: free, Total: total, Reserved: r.reserved(), Reclaimable: r.trashSize.Load()}
	r.mu.Lock()
	defer r.mu.Unlock()
	for root, l := range r.held {
		if !r.referencedLocked(root) {
			out.Reclaimable += l.size
		}
	}
	return out, nil
}

// Status returns the registry's state and what it cannot serve.
func (r *Registry) Status() api.RegistryStatus {
	out := api.RegistryStatus{Status: "Running", Version: r.o.Version}
	for _, d := range r.damage() {
		item := api.RegistryDamage{ID: d.ID, Problem: d.Problem}
		if d.Number >= 0 {
			item.Version = &d.Number
		}
		out.Damaged = append(out.Damaged, item)
	}
	return out
}

// Ready returns nil if the storage is writable, else an error.
func (r *Registry) Ready(ctx context.Context) error {
	err := r.dir.Present()
	if err == nil {
		_, _, err = r.store.Space(ctx)
	}
	if err != nil {
		return unreachable(err)
	}
	return nil
}

func unreachable(err error) error {
	return farm.Unavailable(err, "The storage of the registry cannot be accessed")
}
