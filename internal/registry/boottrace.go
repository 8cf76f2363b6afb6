package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/layout"
)

const (
	// maxTraceFrames is how many frames of a file a trace may name.
	maxTraceFrames = 4096
	// maxFrameNumber bounds the number of a frame: a disk of 16 TiB in frames of 1 MiB has as many.
	maxFrameNumber = 1 << 24
	// keptTraces is how many traces of a version are kept, and agreedTraces in how many of them a frame must be.
	keptTraces, agreedTraces = 3, 2
)

// storedTrace is a trace of one sender.
type storedTrace struct {
	Sender string                   `json:"sender"`
	Files  map[string]api.FileTrace `json:"files"`
}

// AddBootTrace stores what a VM read first of a version. It replaces an older trace of the same sender, so that one
// node alone decides nothing.
func (r *Registry) AddBootTrace(sender string, t api.BootTrace) (err error) {
	defer setDiskFull(&err)
	if err := r.refuseWhenFull(); err != nil {
		return err
	}
	r.metadataMu.Lock()
	defer r.metadataMu.Unlock()
	e, v, err := r.resolveVersion(VersionRef{ID: t.ID, ContentID: t.ContentID})
	if err != nil {
		return err
	}
	if err := checkBootTrace(v, t.Files); err != nil {
		return err
	}
	traces := slices.DeleteFunc(r.bootTraces(e, v), func(s storedTrace) bool { return s.Sender == sender })
	traces = append([]storedTrace{{sender, t.Files}}, traces...)
	raw, err := json.Marshal(traces[:min(len(traces), keptTraces)])
	if err != nil {
		return fmt.Errorf("encode boot traces: %w", err)
	}
	return r.dir.SaveBootTraces(e.template.ID, v.ContentID, raw, func(content string) bool {
		_, err := findVersion(e.template.Versions, VersionRef{ContentID: content})
		return err == nil && content != ""
	})
}

// checkBootTrace refuses a trace that does not belong to the layers that a version has now.
func checkBootTrace(v *layout.Version, files map[string]api.FileTrace) error {
	if len(files) == 0 {
		return farm.Invalid("files", "must have at least one file")
	}
	for name, trace := range files {
		i := slices.IndexFunc(v.Files, func(f layout.File) bool { return f.Name == name })
		switch {
		case i < 0:
			return farm.Invalid("files", "the version has no file %q", truncate(name, 64))
		case !hasLayers(v.Files[i], trace.Roots):
			return farm.Errorf(farm.CodeConflict, "The layers of file %s have changed: record the trace again", name)
		case len(trace.Frames) == 0 || len(trace.Frames) > maxTraceFrames:
			return farm.Invalid("files", "file %s: want 1 to %d frames", name, maxTraceFrames)
		}
		for _, n := range trace.Frames {
			if n < 0 || n >= maxFrameNumber {
				return farm.Invalid("files", "file %s: the number of a frame must be between 0 and %d", name,
					maxFrameNumber-1)
			}
		}
	}
	return nil
}

func hasLayers(f layout.File, roots []string) bool {
	return slices.EqualFunc(f.Layers, roots, func(l layout.Layer, root string) bool { return l.Digest == root })
}

// bootTraces returns the stored traces of a version, the newest first. One that cannot be read counts as none.
func (r *Registry) bootTraces(e *templateEntry, v *layout.Version) (traces []storedTrace) {
	raw, err := r.dir.BootTraces(e.template.ID, v.ContentID)
	if err == nil {
		err = json.Unmarshal(raw, &traces)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		r.log.Warn("reading boot traces failed; they are recorded again", "template", e.template.ID, "content",
			v.ContentID, "error", err)
		return nil
	}
	return traces
}

// agreedTrace returns the frames of a file that several traces have, in the order of the newest.
func agreedTrace(traces []storedTrace, f layout.File) (frames []int) {
	var all []int // those of each trace, without repetitions, the newest trace first
	count := map[int]int{}
	for _, t := range traces {
		if !hasLayers(f, t.Files[f.Name].Roots) {
			continue // of other layers: those of the file were squashed since then
		}
		seen := map[int]bool{}
		for _, n := range t.Files[f.Name].Frames {
			if !seen[n] {
				seen[n] = true
				count[n]++
				all = append(all, n)
			}
		}
	}
	for _, n := range all {
		if count[n] >= agreedTraces {
			frames = append(frames, n)
			delete(count, n)
		}
	}
	return frames
}
