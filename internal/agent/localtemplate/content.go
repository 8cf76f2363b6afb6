package localtemplate

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/transfer"
)

// sumsPrefix begins the name of the checksum file of a disk; the chain ID of the content follows.
// The file is next to the disk.
const sumsPrefix = ".sums-"

// partSuffix ends the name of a file that is not complete yet.
const partSuffix = ".part"

// content identifies the content of a disk: Tip is the registry's chain ID of what the guest sees.
// It is valid until the file is written to; afterwards it describes the former content, and the
// checksum file shows what differs.
type content struct {
	Tip    string `json:"tip"`
	Format string `json:"format"` // of the file
	Size   int64  `json:"size"`   // of the file
	Time   int64  `json:"time"`   // of the last write to it, in nanoseconds
	Disk   int64  `json:"disk"`   // size of the disk that a guest sees
}

// contentOf records the content of a file. An empty tip means that the content is not known.
func contentOf(path, format, tip string) content {
	info, err := os.Stat(path)
	if err != nil || tip == "" {
		return content{}
	}
	k := content{Tip: tip, Format: format, Size: info.Size(), Time: info.ModTime().UnixNano(), Disk: info.Size()}
	if format == "qcow2" {
		k.Disk = 0
		if d, err := (transfer.Disk{Path: path, Format: format}).Open(); err == nil {
			k.Disk = d.Size()
			_ = d.Close() // opened for reading only
		}
	}
	return k
}

// matches reports whether a file still has the content.
func (k content) matches(path string) bool {
	info, err := os.Stat(path)
	return err == nil && k.Tip != "" && info.Size() == k.Size && info.ModTime().UnixNano() == k.Time
}

// sums returns the path of the checksum file of the content in a version's directory. It returns ""
// unless that file is complete: missing checksums would be taken for zeros.
func (k content) sums(dir string) string {
	path := filepath.Join(dir, sumsPrefix+k.Tip)
	info, err := os.Stat(path)
	if err != nil || k.Tip == "" || k.Disk == 0 || info.Size() != transfer.SumsSize(k.Disk) {
		return ""
	}
	return path
}

// knownDisk is a local disk that still has its content.
type knownDisk struct {
	content
	path string
}

// checkUnchanged refuses to make a version from a disk that was changed since it was found.
func (k knownDisk) checkUnchanged() error {
	if k.matches(k.path) {
		return nil
	}
	return farm.Refused(
		"The local disk that this version is based on has changed since its pull or push; pull the version again")
}

// clone clones the disk to a separate file. errors.ErrUnsupported: the file system cannot clone files.
func (k knownDisk) clone(to string) error {
	temp := to + partSuffix
	defer func() { _ = os.Remove(temp) }()
	if err := transfer.Clone(k.path, temp); err != nil {
		return err
	}
	if err := k.checkUnchanged(); err != nil {
		return err
	}
	return os.Rename(temp, to)
}

// have returns the local content by its chain ID.
func (l *Store) have() map[string]knownDisk {
	all := map[string]knownDisk{}
	list, err := os.ReadDir(l.dir)
	if err != nil {
		return all // then everything is pulled
	}
	for _, item := range list {
		var r record
		raw, err := os.ReadFile(filepath.Join(l.dir, item.Name(), recordFile))
		if err != nil || !uuidForm.MatchString(item.Name()) || json.Unmarshal(raw, &r) != nil {
			continue
		}
		for _, v := range r.Versions {
			for name, k := range v.Files {
				path := filepath.Join(l.dir, item.Name(), filepath.Base(v.Dir), filepath.Base(name))
				if k.matches(path) {
					all[k.Tip] = knownDisk{k, path}
				}
			}
		}
	}
	return all
}

// remember creates the checksum files of a version's disks, and removes those of their former
// content. After a failure, the next push sends a whole disk.
func (v *version) remember(ctx context.Context, dir string, progress func(transfer.Progress)) {
	wanted := map[string]bool{}
	for name, k := range v.Files {
		wanted[sumsPrefix+k.Tip] = true
		disk := knownDisk{k, filepath.Join(dir, name)}
		if k.sums(dir) == "" && k.matches(disk.path) {
			_ = copyDisk(ctx, diskCopy{
				from: transfer.Disk{Path: disk.path, Format: k.Format}, sums: filepath.Join(dir, sumsPrefix+k.Tip),
				valid: disk.checkUnchanged, progress: progress,
			})
		}
	}
	old, _ := filepath.Glob(filepath.Join(dir, sumsPrefix+"*"))
	for _, path := range old {
		if !wanted[filepath.Base(path)] {
			_ = os.Remove(path)
		}
	}
}

// diskCopy is a request to read a disk once.
type diskCopy struct {
	from     transfer.Disk
	to       string // raw copy; "": none
	sums     string // "": none
	progress func(transfer.Progress)
	// valid is called after everything was read, and fails if the source has changed. Its error
	// leaves no file.
	valid func() error
}

// copyDisk creates the files of a diskCopy; they get their names once they are complete.
func copyDisk(ctx context.Context, c diskCopy) (err error) {
	disk, err := c.from.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, disk.Close()) }()
	work := transfer.Copy{From: disk, Progress: c.progress}
	for _, f := range []struct {
		path string
		file **os.File
	}{{c.sums, &work.Sums}, {c.to, &work.To}} {
		if f.path == "" {
			continue
		}
		made, err := os.OpenFile(f.path+partSuffix, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		*f.file = made
		defer func() { _ = made.Close(); _ = os.Remove(f.path + partSuffix) }()
	}
	if err := work.Run(ctx); err != nil {
		return err
	}
	if err := c.valid(); err != nil {
		return err
	}
	for _, path := range []string{c.sums, c.to} {
		if path != "" {
			err = errors.Join(err, os.Rename(path+partSuffix, path))
		}
	}
	return err
}
