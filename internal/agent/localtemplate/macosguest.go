package localtemplate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
	"github.com/buildyard/buildyard/internal/reflink"
)

// The disks of a template of macOS, in the order of its configuration.
const (
	macRootFile = "disk.img"
	macAuxFile  = "aux.img"
)

// MacOSGuest is a macOS guest outside of the store: two raw disks and the machine that they belong to.
type MacOSGuest struct {
	Root, Aux string // paths of the root disk and of the auxiliary storage
	CPUs      int    // of its template, when the settings have none
	MemoryMB  int
	Apple     hv.Apple
}

// ImportMacOS makes a template from a macOS guest, which stays as it is. Its disks are clones where the file
// system can, otherwise copies.
func (l *Store) ImportMacOS(ctx context.Context, from MacOSGuest, s Settings, progress Progress) (Template, error) {
	if err := s.checkMac(from); err != nil {
		return Template{}, err
	}
	return l.build(s, func() (templateRecord, config) { return newMacTemplate(from, s) }, func(dir string) error {
		before, err := readFileStates(from.Root, from.Aux)
		if err != nil {
			return fmt.Errorf("import: %w", err)
		}
		for _, f := range []struct{ from, to string }{{from.Aux, macAuxFile}, {from.Root, macRootFile}} {
			err := reflink.CloneFile(f.from, filepath.Join(dir, f.to))
			if errors.Is(err, errors.ErrUnsupported) {
				err = removeThenCopy(ctx, f.from, filepath.Join(dir, f.to), progress)
			}
			if err != nil {
				return fmt.Errorf("import %s: %w", f.from, err)
			}
		}
		return before.checkUnchanged()
	})
}

// fileStates are sizes and times of files, by path.
type fileStates map[string]fileState

type fileState struct {
	size     int64
	modified time.Time
}

func readFileStates(paths ...string) (fileStates, error) {
	states := fileStates{}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err
		}
		states[path] = fileState{info.Size(), info.ModTime()}
	}
	return states, nil
}

// checkUnchanged returns an error if a file was written since: a copy may then be half old, half new.
func (s fileStates) checkUnchanged() error {
	now, err := readFileStates(slices.Collect(maps.Keys(s))...)
	if err != nil {
		return fmt.Errorf("import: %w", err)
	}
	for path, state := range s {
		if now[path] != state {
			return farm.Refused("%s was changed while it was copied; shut the VM down, and import it again", path)
		}
	}
	return nil
}

// AnkaVM is a macOS guest of anka, outside of the store.
type AnkaVM struct {
	CPUs      int   // of its template, when the settings have none; 0 = unknown
	MemoryMB  int   // likewise
	SizeBytes int64 // about that of its archive, for progress

	// Export writes the archive to a path that does not exist. It is called once.
	Export func(ctx context.Context, path string) error
}

// ankaFile is the only disk of a template of anka.
const ankaFile = "vm.anka"

// ImportAnka makes a template from a macOS guest of anka, which stays as it is. Its disk is an archive.
func (l *Store) ImportAnka(ctx context.Context, from AnkaVM, s Settings, progress Progress) (Template, error) {
	image := MacOSGuest{CPUs: from.CPUs, MemoryMB: from.MemoryMB}
	if err := s.checkMac(image); err != nil {
		return Template{}, err
	}
	describe := func() (templateRecord, config) {
		r, c := newMacTemplate(image, s)
		c.parsed.HardDrives = []api.ConfigDrive{{File: ankaFile, Format: hv.FormatAnka}}
		return r, c
	}
	return l.build(s, describe, func(dir string) error {
		path := filepath.Join(dir, ankaFile)
		stop := reportDirGrowth(dir, max(from.SizeBytes, 1), progress)
		err := from.Export(ctx, path)
		stop(err)
		if err != nil {
			return err
		}
		return syncFile(path)
	})
}

// checkMac refuses settings that a macOS guest cannot have.
func (s Settings) checkMac(from MacOSGuest) error {
	switch {
	case s.Arch != "" && s.Arch != "arm64":
		return farm.Invalid("arch", "%s: macOS guests are arm64", s.Arch)
	case s.Firmware != "":
		return farm.Invalid("firmware", "macOS guests have the boot loader of their auxiliary storage; leave it out")
	case s.CPUs != 0 && s.CPUs < from.Apple.MinCPUs:
		return farm.Invalid("cpu", "%d virtual CPUs: this guest needs %d", s.CPUs, from.Apple.MinCPUs)
	case s.MemoryMB != 0 && s.MemoryMB < from.Apple.MinMemoryMiB:
		return farm.Invalid("ram", "%d MiB of memory: this guest needs %d", s.MemoryMB, from.Apple.MinMemoryMiB)
	}
	return nil
}

// newMacTemplate returns a new template of a macOS guest with the settings.
func newMacTemplate(from MacOSGuest, s Settings) (templateRecord, config) {
	s.Arch = "arm64"
	r, c := newTemplate(s, "raw")
	v := &c.parsed
	v.OS, v.Firmware, v.USB = farm.OSMacOS, nil, nil
	v.Display.FrameBuffer = &api.ConfigFrameBuffer{Width: hv.AppleDisplayWidth, Height: hv.AppleDisplayHeight}
	for i := range v.NetworkCards {
		v.NetworkCards[i].PCISlot = 0 // the framework chooses it
	}
	v.Apple = &api.ConfigApple{
		HardwareModel: from.Apple.HardwareModel, MachineID: from.Apple.MachineID,
		MinCPUs: from.Apple.MinCPUs, MinMemoryMB: from.Apple.MinMemoryMiB,
	}
	v.HardDrives = []api.ConfigDrive{{File: macRootFile, Format: "raw"}, {File: macAuxFile, Format: "raw"}}
	if s.CPUs == 0 && from.CPUs > 0 {
		v.CPU = &api.ConfigCPU{Cores: from.CPUs}
	}
	if s.MemoryMB == 0 && from.MemoryMB > 0 {
		v.RAM = strconv.Itoa(from.MemoryMB) + "M"
	}
	return r, c
}

// ExportMacOS returns the disks of a template of macOS where they are in the store, for reading, and the machine
// that they belong to. release ends their use.
func (l *Store) ExportMacOS(id string) (image MacOSGuest, release func(), err error) {
	lock, err := l.lockTemplate(id)
	if err != nil {
		return image, nil, err
	}
	r, c, err := l.readTemplate(id)
	if err == nil {
		image, err = macImageOf(filepath.Join(l.dir, r.ID, filepath.Base(r.CurrentDir)), c)
	}
	if err != nil {
		lock.Release()
		return image, nil, err
	}
	return image, lock.Release, nil
}

// macImageOf returns the macOS guest in the directory of a version.
func macImageOf(dir string, c config) (MacOSGuest, error) {
	v := c.parsed
	if len(v.HardDrives) == 1 && v.HardDrives[0].Format == hv.FormatAnka {
		return MacOSGuest{}, farm.Refused("The template is an archive of anka, which tart cannot read; start it on a " +
			"node with anka")
	}
	if v.Apple == nil || len(v.HardDrives) != hv.AppleDisks {
		return MacOSGuest{}, farm.Refused("The template is not one of a macOS guest on Apple silicon")
	}
	for _, d := range v.HardDrives {
		if d.File == "" || d.File != filepath.Base(d.File) || d.Format != "raw" {
			return MacOSGuest{}, farm.Refused("The template's disk %q is not a raw file in its directory", d.File)
		}
	}
	return MacOSGuest{
		Root: filepath.Join(dir, v.HardDrives[0].File), Aux: filepath.Join(dir, v.HardDrives[1].File),
		CPUs: c.cpus(), MemoryMB: c.memoryMB(),
		Apple: hv.Apple{
			HardwareModel: v.Apple.HardwareModel, MachineID: v.Apple.MachineID,
			MinCPUs: v.Apple.MinCPUs, MinMemoryMiB: v.Apple.MinMemoryMB,
		},
	}, nil
}
