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

// VersionRef names a version of a template; with nothing but ID it is the latest.
type VersionRef struct {
	ID        string // template UUID
	Tag       string
	Number    *int   // 0-indexed
	ContentID string // only used by Manifest
}

// ListTemplates returns all templates, by name.
func (r *Registry) ListTemplates() []api.Template {
	snap := r.snapshot.Load()
	out := make([]api.Template, 0, len(snap.sorted))
	for _, e := range snap.sorted {
		t := e.apiTemplate()
		if n := len(e.template.Versions); n > 0 {
			t.LatestTag, t.VersionCount = e.template.Versions[n-1].Tag, n
		}
		out = append(out, t)
	}
	return out
}

func (e *templateEntry) apiTemplate() api.Template {
	return api.Template{
		ID: e.template.ID, Name: e.template.Name, Size: e.storedBytes, Arch: e.template.Arch,
		LastPull: e.pulls.newestAt.Load(), LastPush: e.lastPush,
	}
}

// TemplateDetail returns one template with its versions.
func (r *Registry) TemplateDetail(id string) (api.TemplateDetail, error) {
	e, err := r.findTemplate(id)
	if err != nil {
		return api.TemplateDetail{}, err
	}
	out := api.TemplateDetail{Template: e.apiTemplate(), Versions: make([]api.TemplateVersion, 0,
		len(e.template.Versions))}
	for i := range e.template.Versions {
		v := e.apiVersion(&e.template.Versions[i])
		v.Scan = e.scans.summary(v.ContentID)
		out.Versions = append(out.Versions, v)
	}
	return out, nil
}

func (e *templateEntry) apiVersion(v *layout.Version) api.TemplateVersion {
	out := api.TemplateVersion{
		Tag: v.Tag, Number: v.Number, Description: v.Description,
		Images: v.Images(), StateFiles: v.StateFiles(), ConfigFile: layout.ConfigName(e.template.ID),
		Size: v.Size(), Increment: e.increments[v.Number], Arch: v.Arch, CreationDate: v.Created, LastPush: v.LastPush,
		LastPull: e.pulls.lastPull(v.ContentID), ContentID: v.ContentID,
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

// VersionConfig returns a version's configuration object as JSON.
func (r *Registry) VersionConfig(ref VersionRef) (json.RawMessage, error) {
	return withVersion(r, ref, func(e *templateEntry, v *layout.Version) (json.RawMessage, error) {
		config, err := r.dir.Config(e.template.ID, v)
		return config, unreadableVersion(e, v, err)
	})
}

// unreadableVersion describes a version whose directory cannot be read, and names the remedy; nil without err.
func unreadableVersion(e *templateEntry, v *layout.Version, err error) error {
	if err == nil {
		return nil
	}
	return &farm.Error{Code: farm.CodeRefused, Err: err, Message: fmt.Sprintf(
		"Version %d of template %s is damaged: its configuration or nvram cannot be read; \"buildyard registry "+
			"check\" says more", v.Number, e.template.Name)}
}

// withVersion reads something of a version from disk. The version may be reverted after the snapshot was loaded:
// it retries as long as a failure coincides with a newer snapshot of the template.
func withVersion[T any](r *Registry, ref VersionRef, read func(*templateEntry, *layout.Version) (T, error)) (T, error) {
	for {
		var none T
		e, v, err := r.resolveVersion(ref)
		if err != nil {
			return none, err
		}
		out, err := read(e, v)
		if err == nil {
			return out, nil
		}
		if again, _ := r.findTemplate(ref.ID); again == e {
			return none, err
		}
	}
}

// findTemplate finds a template. An ID that is not a UUID is reported as unknown like any other.
func (r *Registry) findTemplate(id string) (*templateEntry, error) {
	clean, _ := layout.ParseID(id)
	e := r.snapshot.Load().templates[clean]
	if e == nil {
		return nil, r.templateNotFound(clean)
	}
	return e, nil
}

// templateNotFound returns why a template was not found: it is damaged as a whole, or never existed.
func (r *Registry) templateNotFound(id string) error {
	for _, d := range r.snapshot.Load().damaged {
		if d.ID == id && d.Number < 0 {
			return farm.Refused(
				"Template %s is damaged: %s; run \"buildyard registry repair\" at the registry, and push it again",
				id, d.Problem)
		}
	}
	return farm.NotFound()
}

// resolveVersion finds a version. Tag and number, when both are given, must agree.
func (r *Registry) resolveVersion(ref VersionRef) (*templateEntry, *layout.Version, error) {
	e, err := r.findTemplate(ref.ID)
	if err != nil {
		return nil, nil, err
	}
	i, err := findVersion(e.template.Versions, ref)
	if err != nil {
		return nil, nil, err
	}
	return e, &e.template.Versions[i], nil
}

// findVersion returns the position of a version among those of its template.
func findVersion(versions []layout.Version, ref VersionRef) (int, error) {
	for i := len(versions) - 1; i >= 0; i-- {
		v := &versions[i]
		tag := ref.Tag == "" || v.Tag == ref.Tag
		number := ref.Number == nil || v.Number == *ref.Number
		content := ref.ContentID == "" || v.ContentID == ref.ContentID
		if tag && number && content {
			return i, nil
		}
	}
	return 0, versionNotFound(versions, ref)
}

// versionNotFound returns why a version was not found: it is unknown, or its tag and number disagree.
func versionNotFound(versions []layout.Version, ref VersionRef) error {
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

// DiskInfo returns the space of the store.
func (r *Registry) DiskInfo(ctx context.Context) (api.DiskInfo, error) {
	free, total, err := r.store.Space(ctx)
	if err != nil {
		return api.DiskInfo{}, storageUnreachable(err)
	}
	out := api.DiskInfo{Free: free, Total: total, Reserved: r.reservedBytes(), Reclaimable: r.trashBytes.Load()}
	r.mu.Lock()
	defer r.mu.Unlock()
	for root, l := range r.storedLayers {
		if !r.isReferencedLocked(root) {
			out.Reclaimable += l.size
		}
	}
	return out, nil
}

// Status returns the registry's state and what it cannot serve.
func (r *Registry) Status() api.RegistryStatus {
	out := api.RegistryStatus{Status: "Running", Version: r.opts.Version}
	for _, d := range r.listDamage() {
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
	err := r.dir.CheckPresent()
	if err == nil {
		_, _, err = r.store.Space(ctx)
	}
	if err != nil {
		return storageUnreachable(err)
	}
	return nil
}

func storageUnreachable(err error) error {
	return farm.Unavailable(err, "The storage of the registry cannot be accessed")
}
