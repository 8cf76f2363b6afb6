package localtemplate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/agent/datadir"
	"github.com/buildyard/buildyard/internal/agent/host"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/hv"
)

const (
	controller    = "virtio-blk"
	configVersion = 1 // of the configuration object
	copyBuffer    = 4 << 20
)

// Progress receives the number of bytes that are done and the total; it may be nil.
type Progress func(done, total int64)

// ImageFormat returns the image format of a file: the named one, otherwise by the file's extension. It
// never looks inside, since a guest can write any header to its disk.
func ImageFormat(path, named string) (string, error) {
	switch {
	case named == "raw" || named == "qcow2":
		return named, nil
	case named == hv.FormatAnka:
		return "", farm.Invalid("format", "an archive of anka is not a disk image; import the VM with vm import --anka")
	case named != "":
		return "", farm.Invalid("format", "unknown format %q: want raw or qcow2", named)
	}
	switch strings.ToLower(filepath.Ext(path)) {
	case ".qcow2":
		return "qcow2", nil
	case ".img", ".raw":
		return "raw", nil
	}
	return "",
		farm.Invalid("format", "cannot tell the format of %s from its extension; set --format raw or --format qcow2",
			filepath.Base(path))
}

// Import makes a template from a disk image, which stays as it is. The template's
// disk is an image of the format of the image driver: a copy, or converted.
func (l *Store) Import(ctx context.Context, from hv.Disk, s Settings, progress Progress) (Template, error) {
	info, err := os.Stat(from.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Template{}, farm.Errorf(farm.CodeNotFound, "File %s not found", from.Path)
	case err != nil:
		return Template{}, fmt.Errorf("import: %w", err)
	case info.IsDir():
		return Template{}, farm.Refused("%s is a directory, not a disk image", from.Path)
	}
	if _, err := l.imageTool.Check(ctx, from); err != nil {
		return Template{}, fmt.Errorf("import %s: %w", from.Path, err)
	}
	return l.buildTemplate(s, func(dir string) error {
		to := l.newDisk(dir)
		if from.Format == to.Format {
			return copyFile(ctx, from.Path, to.Path, progress)
		}
		stop := reportDirGrowth(dir, max(host.AllocatedBytes(from.Path), 1), progress)
		err := l.imageTool.Convert(ctx, from, to)
		stop(err)
		if err != nil {
			return err
		}
		return syncFile(to.Path)
	})
}

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Create makes a template with an empty disk of bytes bytes.
func (l *Store) Create(ctx context.Context, bytes int64, s Settings) (Template, error) {
	return l.buildTemplate(s, func(dir string) error {
		return l.imageTool.Create(ctx, l.newDisk(dir), bytes)
	})
}

// buildTemplate builds a template with one disk of the image driver's format.
func (l *Store) buildTemplate(s Settings, fill func(dir string) error) (Template, error) {
	return l.build(s, func() (templateRecord, config) { return newTemplate(s, l.imageTool.Format()) }, fill)
}

// build builds a template in a temporary directory and renames that when it is complete.
func (l *Store) build(
	s Settings, describe func() (templateRecord, config), fill func(dir string) error,
) (Template, error) {
	if s.Name == "" {
		return Template{}, farm.Invalid("name", "is required")
	}
	if err := s.check(); err != nil {
		return Template{}, err
	}
	r, c := describe()
	raw, err := c.encode()
	if err != nil {
		return Template{}, err
	}
	temp := newPrefix + rand.Text()
	dir := filepath.Join(l.dir, temp, localDir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return Template{}, fmt.Errorf("create template: %w", withoutPaths(err))
	}
	lock, err := datadir.LockFile(filepath.Join(l.dir, temp, lockFile), errors.New("taken"))
	if err != nil {
		return Template{}, err
	}
	defer lock.Release()
	err = fill(dir)
	if err == nil {
		err = datadir.WriteFile(filepath.Join(dir, configFile), raw)
	}
	if err == nil {
		err = l.commitDir(temp, r)
	}
	if err != nil {
		return Template{}, errors.Join(fmt.Errorf("create template: %w", withoutPaths(err)),
			os.RemoveAll(filepath.Join(l.dir, temp)))
	}
	return l.showTemplate(r.ID)
}

// commitDir writes the record and renames the directory to its final name.
func (l *Store) commitDir(temp string, r templateRecord) error {
	if err := l.writeRecord(temp, r); err != nil {
		return err
	}
	if err := os.Rename(filepath.Join(l.dir, temp), filepath.Join(l.dir, r.ID)); err != nil {
		return err
	}
	return datadir.SyncDir(l.dir)
}

// diskFileName returns the name of the disk of a new template.
func diskFileName(format string) string {
	if format == "raw" {
		return "disk.img"
	}
	return "disk." + format
}

// newDisk returns the disk of a new template in its directory.
func (l *Store) newDisk(dir string) hv.Disk {
	format := l.imageTool.Format()
	return hv.Disk{Path: filepath.Join(dir, diskFileName(format)), Format: format}
}

// newTemplate returns a new template with defaults, the settings, and a disk of a format.
func newTemplate(s Settings, format string) (templateRecord, config) {
	r := templateRecord{
		ID: uuid.NewString(), Name: s.Name, Arch: s.Arch, Created: time.Now().UTC().Truncate(time.Second),
		CurrentDir: localDir, Versions: []templateVersion{{DirName: localDir, Number: -1}},
	}
	if r.Arch == "" {
		r.Arch = runtime.GOARCH
	}
	var c config
	c.parsed.Name, c.parsed.UUID, c.parsed.Version = r.Name, r.ID, configVersion
	c.parsed.HardDrives = []api.ConfigDrive{{Controller: controller, File: diskFileName(format), Format: format}}
	c.apply(Settings{
		CPUs: DefaultCPUs, MemoryMB: DefaultMemoryMB, NetworkMode: Networks[0], Firmware: DefaultFirmware(r.Arch),
		Ports: []api.ConfigPort{SSHRule},
	})
	c.apply(s)
	c.describePC()
	return r, c
}

// DefaultFirmware returns the kind of firmware that guests of an architecture boot with.
func DefaultFirmware(arch string) string {
	if arch == "arm64" {
		return hv.FirmwareUEFI
	}
	return hv.FirmwareBIOS
}

// describePC sets what a client reads of the devices of a PC; starts do not depend on it.
func (c *config) describePC() {
	v := &c.parsed
	for i := range v.HardDrives {
		v.HardDrives[i].PCISlot = hv.PCISlotFirstDisk + i
	}
	for i := range v.NetworkCards {
		v.NetworkCards[i].PCISlot = hv.PCISlotNetwork
	}
	v.USB = &api.ConfigUSB{PCISlot: hv.PCISlotUSB, Host: true}
	v.Display = &api.ConfigScreen{FrameBuffer: &api.ConfigFrameBuffer{PCISlot: hv.PCISlotVideo}}
}

// removeThenCopy copies a file to a path at which a failed clone may have left an empty one.
func removeThenCopy(ctx context.Context, from, to string, progress Progress) error {
	if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return copyFile(ctx, from, to, progress)
}

// copyFile copies with progress and makes the copy durable. Blocks of zeros become
// holes.
func copyFile(ctx context.Context, from, to string, progress Progress) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	buf := make([]byte, copyBuffer)
	for done := int64(0); ; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := io.ReadFull(in, buf)
		if n > 0 && !isZero(buf[:n]) {
			if _, err := out.WriteAt(buf[:n], done); err != nil {
				return err
			}
		}
		done += int64(n)
		if progress != nil {
			progress(done, info.Size())
		}
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return errors.Join(out.Truncate(done), out.Sync())
		case err != nil:
			return err
		}
	}
}

func isZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// reportDirGrowth reports the growth of a directory as the progress of work that has no progress reports.
// The returned function ends it, with the total when the work succeeded.
func reportDirGrowth(dir string, total int64, progress Progress) (stop func(error)) {
	if progress == nil {
		return func(error) {}
	}
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(250 * time.Millisecond)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				progress(min(host.AllocatedBytes(dir), total), total)
			}
		}
	}()
	return func(err error) {
		close(done)
		<-ended
		if err == nil {
			progress(total, total)
		}
	}
}
