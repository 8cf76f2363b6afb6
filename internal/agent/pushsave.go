package agent

import (
	"cmp"
	"context"
	"encoding/json"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/cache"
	"github.com/buildyard/buildyard/internal/agent/journal"
	"github.com/buildyard/buildyard/internal/agent/vmconfig"
	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/retry"
	"github.com/buildyard/buildyard/internal/transfer"
)

// pushPatience is how long a push without progress is retried.
const pushPatience = 10 * time.Minute

// pushSave publishes the save and adds it to the node's cache.
func (a *Agent) pushSave(ctx context.Context, in *instance, _ hv.VM) error {
	t := in.snapshot().Task
	v, err := a.savedVersionOf(in, t)
	if err != nil {
		if t.Version == nil {
			return a.failUnlessEnding(ctx, in, "The save cannot be pushed: %v", err)
		}
		v.paths = nil // published by an agent that was killed; there is nothing to adopt
	}
	if t.Version == nil {
		result, err := a.publishSave(ctx, in, t, v.push)
		if err == nil || in.ending.Err() == nil {
			a.metrics.saves.Observe(err)
		}
		if farm.CodeOf(err) == farm.CodeNotFound { // a registry returns no further detail
			err = farm.Refused("template %s is no longer in the registry", t.Order.Save.TemplateID)
		}
		if err != nil {
			return a.failUnlessEnding(ctx, in, "The save could not be pushed: %v", err)
		}
		a.log.Info("saved version pushed", "instance_id", in.id, "template", result.ID, "tag", result.Tag, "version",
			result.Number)
		err = a.changeTask(ctx, in, func(t *journal.Task) { t.Version, t.ChainIDs = &result, v.push.LayerDigests })
		if err != nil {
			return err
		}
		t = in.snapshot().Task
	}
	if err := a.cacheSavedVersion(ctx, in, t, v); err != nil {
		a.log.Warn("adding the saved version to the cache failed; it will be pulled", "instance_id", in.id, "error",
			err)
	}
	if err := a.removeSaveFiles(ctx, in); err != nil {
		return err
	}
	return a.endTask(ctx, in, func(_ *journal.State, t *journal.Task) { t.Stage, t.ChainIDs = api.TaskDone, nil })
}

// savedVersion is the version that a save creates: its push, and where its files are on this node.
// Until the content has an ID, the files are described without it.
type savedVersion struct {
	push  transfer.PushOptions
	paths map[string]string
	files map[string]cache.File
}

// savedVersionOf returns the version that a save creates: the disks of its base with the VM's changes,
// of which only the changes are sent and kept.
func (a *Agent) savedVersionOf(in *instance, t *journal.Task) (savedVersion, error) {
	v := savedVersion{paths: map[string]string{}, files: map[string]cache.File{}}
	config, base, err := a.opts.Templates.Config(in.order.Start.ContentID)
	if err != nil {
		return v, err
	}
	disks, err := vmconfig.Disks(config.HardDrives, versionFiles(base))
	if err != nil {
		return v, err
	}
	if len(disks) != len(t.Saved.Disks) {
		return v, farm.Refused("The VM has %d disks, but its template has %d", len(t.Saved.Disks), len(disks))
	}
	changes := a.configChanges(in, t, config)
	for i, d := range disks {
		file, name, delta := config.HardDrives[i].File, changes.FileNames.Disks[i], t.Saved.Disks[i].Path
		v.push.Files = append(v.push.Files, transfer.PushFile{
			Name: name, Kind: api.FileDisk,
			Disk:   &diskfile.Disk{Path: d.Path, Format: d.Format, Overlays: append(d.Deltas, delta)},
			Parent: pushParent(base.Files[file], d),
		})
		v.paths[name] = delta
		v.files[name] = cache.File{
			Format: d.Format, Base: &cache.BaseFile{ContentID: base.Ref.ContentID, FileName: file},
		}
	}
	if t.Saved.State != "" {
		name := changes.FileNames.State
		v.push.Files = append(v.push.Files, transfer.PushFile{Name: name, Path: t.Saved.State, Kind: api.FileState})
		v.paths[name], v.files[name] = t.Saved.State, cache.File{}
	}
	order := t.Order.Save
	v.push.LayerDigests = map[string]string{}
	v.push.Request = api.PushRequest{
		ID: order.TemplateID, Name: order.NewName, MustExist: order.NewName == "", Tag: order.Tag,
		Description: order.Description, Arch: a.host.Arch, Revert: order.Revert, NVRAM: base.NVRAM, ResumeKey: t.ID(),
	}
	v.push.Request.Config, err = vmconfig.DeriveConfig(base.Config, changes)
	return v, err
}

// pushParent identifies what a disk was made from, for a registry that may have it. It is nil when
// that has no chain ID, or is not stored there as a guest sees it.
func pushParent(f cache.File, d hv.Disk) *transfer.PushParent {
	opaque := f.Base == nil && f.Format != "raw"
	if f.ChainID == "" || opaque {
		return nil
	}
	return &transfer.PushParent{ChainID: f.ChainID, FileCount: 1 + len(d.Deltas)}
}

// configChanges returns how the save changes the configuration of its base: it describes the machine as
// it ran, whatever the order had changed, but has neither its port rules nor secrets.
func (a *Agent) configChanges(in *instance, t *journal.Task, config api.TemplateConfig) vmconfig.Changes {
	c := vmconfig.Changes{SaveID: t.ID(), FileNames: vmconfig.FileNamesFor(config)}
	if m := in.order.Start.Machine; m != nil {
		c.NetworkMode, c.VideoController = m.Network, m.Video
	}
	if vm := in.snapshot().VM; vm != nil {
		c.CPUs, c.MemoryMB, c.MAC = vm.CPUs, vm.MemoryMB, vm.MAC
	}
	if t.Saved.State == "" {
		c.FileNames.State = ""
		return c
	}
	pin := api.StateRequirements(t.Saved.Requirements)
	c.StatePin, c.CPUs, c.MemoryMB = &pin, pin.CPUs, pin.MemoryMB
	return c
}

// publishSave pushes until the version is published, the registry refuses it, or nothing progresses for
// pushPatience.
func (a *Agent) publishSave(
	ctx context.Context, in *instance, t *journal.Task, push transfer.PushOptions,
) (api.PushResult, error) {
	life, done := in.untilTermination(ctx)
	defer done()
	moved, best := time.Now(), 0.0
	push.Progress = func(p transfer.Progress) {
		if at := p.Fraction(); at > best {
			moved, best = time.Now(), at
		}
		a.setTaskProgress(in, p.Fraction())
	}
	push.AbandonOnFailure = func(failure error) bool {
		return in.ending.Err() != nil || (life.Err() == nil && !transfer.IsTemporary(failure))
	}
	address := a.registryAddress(t.Order.Save.Registry)
	pause := retry.New(retryFirst, retryMax)
	for {
		result, err := a.opts.Registries.Push(life, address, push)
		if err == nil || life.Err() != nil {
			return result, err
		}
		if !transfer.IsTemporary(err) {
			// It may have been published already: the response was lost with an earlier agent.
			if found, is := a.findPublishedSave(life, address, t, push); is {
				return found, nil
			}
		}
		if !transfer.IsTemporary(err) || time.Since(moved) > pushPatience {
			return result, err
		}
		a.log.Warn("push of a save failed; retrying", "instance_id", in.id, "error", err)
		if pause.Sleep(life) != nil {
			return result, life.Err()
		}
	}
}

// findPublishedSave reports whether the registry has this very save under its tag.
func (a *Agent) findPublishedSave(
	ctx context.Context, address string, t *journal.Task, push transfer.PushOptions,
) (api.PushResult, bool) {
	ref := transfer.VersionRef{ID: t.Order.Save.TemplateID, Tag: t.Order.Save.Tag}
	if ref.ID == "" {
		return api.PushResult{}, false
	}
	m, err := a.opts.Registries.Inspect(ctx, address, t.ID(), ref)
	var config api.TemplateConfig
	if err != nil || json.Unmarshal(m.Config, &config) != nil || config.Save != t.ID() {
		return api.PushResult{}, false
	}
	for _, f := range m.Files {
		if n := len(f.Layers); n > 0 {
			push.LayerDigests[f.Name] = cmp.Or(f.Layers[n-1].Tip, f.Layers[n-1].Root)
		}
	}
	return api.PushResult{
		ID: m.ID, Name: m.Name, Tag: m.Version.Tag, Number: m.Version.Number, ContentID: m.ContentID, Gen: m.Gen,
		Size: m.Version.Size,
	}, true
}

// setTaskProgress reports the progress of a push, without a durable write for each step.
func (a *Agent) setTaskProgress(in *instance, at float64) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if t := in.state.Task; t != nil && t.Stage == api.TaskPushing {
		a.advanceLocked(in, &in.taskReport.pushProgress, at)
	}
}

// cacheSavedVersion adds the new version to the cache, so that a start of it on this node pulls nothing:
// its disks are based on those of its base version.
func (a *Agent) cacheSavedVersion(ctx context.Context, in *instance, t *journal.Task, m savedVersion) error {
	v := t.Version
	if len(m.paths) == 0 || a.opts.Templates.Has(v.ContentID) {
		return nil
	}
	config, err := vmconfig.WithTemplateName(m.push.Request.Config, v.ID, v.Name)
	if err != nil {
		return err
	}
	for name, f := range m.files {
		f.ChainID = t.ChainIDs[name]
		m.files[name] = f
	}
	life, done := in.untilTermination(ctx)
	defer done()
	return a.opts.Templates.AddLocal(life, cache.LocalVersion{
		Ref: cache.Ref{
			Registry: a.registryAddress(t.Order.Save.Registry), TemplateID: v.ID, Name: v.Name, Tag: v.Tag,
			Version: v.Number, ContentID: v.ContentID,
		},
		Paths: m.paths, Files: m.files, Config: config, NVRAM: m.push.Request.NVRAM,
	})
}
