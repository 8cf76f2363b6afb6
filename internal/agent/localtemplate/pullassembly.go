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
	"github.com/buildyard/buildyard/internal/diskfile"
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

// pullAssembly is the second step of one pull.
type pullAssembly struct {
	pullDir    string // of the pull
	localDisks map[string]knownDisk
	manifest   map[string]api.PullFile
	progress   func(transfer.Progress)
}

// fetch runs the first step, unless an earlier pull did, and returns its files.
func (p *templatePull) fetch(ctx context.Context, s pullAssembly) ([]transfer.BuiltFile, error) {
	var built []transfer.BuiltFile
	record := filepath.Join(s.pullDir, builtFile)
	raw, err := os.ReadFile(record)
	if err == nil && json.Unmarshal(raw, &built) == nil && isBaseLocal(built, s.localDisks) {
		return built, nil
	}
	parts := filepath.Join(s.pullDir, partsDir)
	if err := errors.Join(removeFile(record), os.RemoveAll(filepath.Join(s.pullDir, wholeDir)),
		os.MkdirAll(parts, 0o700)); err != nil {
		return nil, err
	}
	disks := map[string]diskfile.Disk{}
	for tip, k := range s.localDisks {
		disks[tip] = diskfile.Disk{Path: k.path, Format: k.Format}
	}
	result, err := p.registry.Pull(ctx, transfer.PullOptions{
		Ref: transfer.VersionRef{ID: p.manifest.ID, ContentID: p.manifest.ContentID}, Dir: parts, LocalContent: disks,
		AllowOverlays: true,
		Progress:      p.opts.PullProgress,
		AfterClone:    func(tip string) error { return s.localDisks[tip].checkUnchanged() },
	})
	if err != nil {
		return nil, err
	}
	if raw, err = json.Marshal(result.Files); err != nil {
		return nil, err
	}
	return result.Files, datadir.WriteFile(record, raw)
}

func removeFile(path string) error {
	err := os.Remove(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// isBaseLocal reports whether all base content of the files is still local.
func isBaseLocal(built []transfer.BuiltFile, have map[string]knownDisk) bool {
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
		return f.ParentChainID, true
	case transfer.FormLinked:
		return f.ChainID, true
	default:
		return "", false
	}
}

// assemble runs the second step and returns the contents of the disks. fs.ErrNotExist: something of
// the first step's result is missing.
func (s pullAssembly) assemble(ctx context.Context, built []transfer.BuiltFile) (map[string]diskContent, error) {
	parts, whole := filepath.Join(s.pullDir, partsDir), filepath.Join(s.pullDir, wholeDir)
	if err := os.MkdirAll(whole, 0o700); err != nil {
		return nil, err
	}
	files := map[string]diskContent{}
	for _, f := range built {
		to := filepath.Join(whole, f.Name)
		if _, err := os.Lstat(to); errors.Is(err, fs.ErrNotExist) {
			if err := s.assembleFile(ctx, f, to); err != nil {
				return nil, err
			}
		}
		if m := s.manifest[f.Name]; m.Kind == api.FileDisk && m.Format == "raw" {
			files[f.Name] = contentOf(to, m.Format, f.ChainID)
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
	v := templateVersion{Files: files}
	v.createChecksums(ctx, whole, s.progress)
	return files, errors.Join(context.Cause(ctx), datadir.SyncDir(whole))
}

// assembleFile creates one file in its final form.
func (s pullAssembly) assembleFile(ctx context.Context, f transfer.BuiltFile, to string) error {
	part := filepath.Join(s.pullDir, partsDir, f.Name)
	below, lies := parentChainID(f)
	if !lies {
		return os.Rename(part, to)
	}
	base := s.localDisks[below]
	from := diskfile.Disk{Path: base.path, Format: base.Format}
	err := errors.ErrUnsupported
	switch {
	case f.Form == transfer.FormOverlay:
		from.Overlays = []string{part}
	case base.Format == "raw":
		err = base.cloneTo(to)
	}
	if errors.Is(err, errors.ErrUnsupported) {
		sums := filepath.Join(filepath.Dir(to), checksumPrefix+f.ChainID)
		err = copyDisk(ctx,
			diskCopy{
				source: from, rawCopyPath: to, checksumPath: sums, checkUnchanged: base.checkUnchanged,
				progress: s.progress,
			})
	}
	if farm.CodeOf(err) == farm.CodeRefused {
		return errors.Join(err, os.RemoveAll(s.pullDir))
	}
	return err
}
