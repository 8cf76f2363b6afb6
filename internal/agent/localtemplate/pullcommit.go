package localtemplate

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/transfer"
)

// A pull has two steps, so that a disk costs only what differs from a local one, and is still a
// separate file that its owner may change. The first step pulls the registry's part into partsDir.
// The second step creates wholeDir from that and from the base content. builtFile marks the end of
// the first step.
const (
	partsDir  = "parts"
	wholeDir  = "whole"
	builtFile = "built.json"
)

// pullCommit is the second step of one pull.
type pullCommit struct {
	dir      string // of the pull
	have     map[string]knownDisk
	manifest map[string]api.PullFile
	progress func(transfer.Progress)
}

// fetch runs the first step, unless an earlier pull did, and returns its files.
func (p *templatePull) fetch(ctx context.Context, s pullCommit) ([]transfer.BuiltFile, error) {
	var built []transfer.BuiltFile
	record := filepath.Join(s.dir, builtFile)
	raw, err := os.ReadFile(record)
	if err == nil && json.Unmarshal(raw, &built) == nil && usable(built, s.have) {
		return built, nil
	}
	parts := filepath.Join(s.dir, partsDir)
	if err := errors.Join(remove(record), os.RemoveAll(filepath.Join(s.dir, wholeDir)),
		os.MkdirAll(parts, 0o700)); err != nil {
		return nil, err
	}
	disks := map[string]transfer.Disk{}
	for tip, k := range s.have {
		disks[tip] = transfer.Disk{Path: k.path, Format: k.Format}
	}
	result, err := p.reg.Pull(ctx, transfer.PullOptions{
		Ref: transfer.Ref{ID: p.m.ID, ContentID: p.m.ContentID}, Dir: parts, Have: disks, Overlays: true,
		Progress: p.o.Progress,
		Cloned:   func(tip string) error { return s.have[tip].checkUnchanged() },
	})
	if err != nil {
		return nil, err
	}
	if raw, err = json.Marshal(result.Files); err != nil {
		return nil, err
	}
	return result.Files, datadir.WriteFile(record, raw)
}

func remove(path string) error {
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// usable reports whether all base content of the files is still local.
func usable(built []transfer.BuiltFile, have map[string]knownDisk) bool {
	for _, f := range built {
		if below, lies := parentChainID(f); lies && have[below].path == "" {
			return false
		}
	}
	return true
}

// parentChainID returns the chain ID of the content that a file is based on, or is a link to.
func parentChainID(f transfer.BuiltFile) (tip string, lies bool) {
	switch f.Form {
	case transfer.FormOverlay:
		return f.Below, true
	case transfer.FormLinked:
		return f.Tip, true
	default:
		return "", false
	}
}

// assemble runs the second step and returns the contents of the disks. fs.ErrNotExist: something of
// the first step's result is missing.
func (s pullCommit) assemble(ctx context.Context, built []transfer.BuiltFile) (map[string]content, error) {
	parts, whole := filepath.Join(s.dir, partsDir), filepath.Join(s.dir, wholeDir)
	if err := os.MkdirAll(whole, 0o700); err != nil {
		return nil, err
	}
	files := map[string]content{}
	for _, f := range built {
		to := filepath.Join(whole, f.Name)
		if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
			if err := s.assembleFile(ctx, f, to); err != nil {
				return nil, err
			}
		}
		if m := s.manifest[f.Name]; m.Kind == api.FileDisk && m.Format == "raw" {
			files[f.Name] = contentOf(to, m.Format, f.Tip)
		}
	}
	for _, name := range []string{transfer.ConfigFile, transfer.NVRAMFile} {
		err := os.Rename(filepath.Join(parts, name), filepath.Join(whole, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	if _, err := os.Lstat(filepath.Join(whole, transfer.ConfigFile)); err != nil {
		return nil, err
	}
	v := version{Files: files}
	v.remember(ctx, whole, s.progress)
	return files, errors.Join(context.Cause(ctx), datadir.SyncDir(whole))
}

// assembleFile creates one file in its final form.
func (s pullCommit) assembleFile(ctx context.Context, f transfer.BuiltFile, to string) error {
	part := filepath.Join(s.dir, partsDir, f.Name)
	below, lies := parentChainID(f)
	if !lies {
		return os.Rename(part, to)
	}
	base := s.have[below]
	from := transfer.Disk{Path: base.path, Format: base.Format}
	err := errors.ErrUnsupported
	switch {
	case f.Form == transfer.FormOverlay:
		from.Overlays = []string{part}
	case base.Format == "raw":
		err = base.clone(to)
	}
	if errors.Is(err, errors.ErrUnsupported) {
		sums := filepath.Join(filepath.Dir(to), sumsPrefix+f.Tip)
		err = copyDisk(ctx, diskCopy{from: from, to: to, sums: sums, valid: base.checkUnchanged, progress: s.progress})
	}
	if farm.CodeOf(err) == farm.CodeRefused {
		return errors.Join(err, os.RemoveAll(s.dir))
	}
	return err
}
