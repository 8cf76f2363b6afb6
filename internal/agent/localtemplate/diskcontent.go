package localtemplate

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"

	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/farm"
	"github.com/buildyard/buildyard/internal/reflink"
	"github.com/buildyard/buildyard/internal/transfer"
)

// checksumPrefix begins the name of the checksum file of a disk; the chain ID of the content follows.
// The file is next to the disk.
const checksumPrefix = ".sums-"

// partSuffix ends the name of a file that is not complete yet.
const partSuffix = ".part"

// diskContent identifies the content of a disk: Tip is the registry's chain ID of what the guest sees.
// It is valid until the file is written to; afterwards it describes the former content, and the
// checksum file shows what differs.
type diskContent struct {
	ChainID       string `json:"tip"`
	Format        string `json:"format"` // of the file
	FileBytes     int64  `json:"size"`   // of the file
	ModifiedNanos int64  `json:"time"`   // of the last write to it, in nanoseconds
	GuestBytes    int64  `json:"disk"`   // size of the disk that a guest sees
}

// contentOf records the content of a file. An empty tip means that the content is not known.
func contentOf(path, format, tip string) diskContent {
	info, err := os.Stat(path)
	if err != nil || tip == "" {
		return diskContent{}
	}
	k := diskContent{
		ChainID: tip, Format: format, FileBytes: info.Size(), ModifiedNanos: info.ModTime().UnixNano(),
		GuestBytes: info.Size(),
	}
	if format == "qcow2" {
		k.GuestBytes = 0
		if d, err := (diskfile.Disk{Path: path, Format: format}).Open(); err == nil {
			k.GuestBytes = d.Size()
			_ = d.Close() // opened for reading only
		}
	}
	return k
}

// matchesFile reports whether a file still has the content.
func (k diskContent) matchesFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && k.ChainID != "" && info.Size() == k.FileBytes && info.ModTime().UnixNano() == k.ModifiedNanos
}

// checksumPath returns the path of the checksum file of the content in a version's directory. It returns ""
// unless that file is complete: missing checksums would be taken for zeros.
func (k diskContent) checksumPath(dir string) string {
	path := filepath.Join(dir, checksumPrefix+k.ChainID)
	info, err := os.Stat(path)
	if err != nil || k.ChainID == "" || k.GuestBytes == 0 || info.Size() != transfer.ChecksumFileSize(k.GuestBytes) {
		return ""
	}
	return path
}

// knownDisk is a local disk that still has its content.
type knownDisk struct {
	diskContent
	path string
}

// checkUnchanged refuses to make a version from a disk that was changed since it was found.
func (k knownDisk) checkUnchanged() error {
	if k.matchesFile(k.path) {
		return nil
	}
	return farm.Refused(
		"The local disk that this version is based on has changed since its pull or push; pull the version again")
}

// cloneTo clones the disk to a separate file. errors.ErrUnsupported: the file system cannot clone files.
func (k knownDisk) cloneTo(to string) error {
	temp := to + partSuffix
	defer func() { _ = os.Remove(temp) }()
	if err := reflink.CloneFile(k.path, temp); err != nil {
		return err
	}
	if err := k.checkUnchanged(); err != nil {
		return err
	}
	return os.Rename(temp, to)
}

// localDisks returns the local content by its chain ID.
func (l *Store) localDisks() map[string]knownDisk {
	all := map[string]knownDisk{}
	list, err := os.ReadDir(l.dir)
	if err != nil {
		return all // then everything is pulled
	}
	for _, item := range list {
		var r templateRecord
		raw, err := os.ReadFile(filepath.Join(l.dir, item.Name(), recordFile))
		if err != nil || !uuidForm.MatchString(item.Name()) || json.Unmarshal(raw, &r) != nil {
			continue
		}
		for _, v := range r.Versions {
			for name, k := range v.Files {
				path := filepath.Join(l.dir, item.Name(), filepath.Base(v.DirName), filepath.Base(name))
				if k.matchesFile(path) {
					all[k.ChainID] = knownDisk{k, path}
				}
			}
		}
	}
	return all
}

// createChecksums creates the checksum files of a version's disks, and removes those of their former
// content. After a failure, the next push sends a whole disk.
func (v *templateVersion) createChecksums(ctx context.Context, dir string, progress func(transfer.Progress)) {
	wanted := map[string]bool{}
	for name, k := range v.Files {
		wanted[checksumPrefix+k.ChainID] = true
		disk := knownDisk{k, filepath.Join(dir, name)}
		if k.checksumPath(dir) == "" && k.matchesFile(disk.path) {
			_ = copyDisk(ctx, diskCopy{
				source:         diskfile.Disk{Path: disk.path, Format: k.Format},
				checksumPath:   filepath.Join(dir, checksumPrefix+k.ChainID),
				checkUnchanged: disk.checkUnchanged, progress: progress,
			})
		}
	}
	old, _ := filepath.Glob(filepath.Join(dir, checksumPrefix+"*"))
	for _, path := range old {
		if !wanted[filepath.Base(path)] {
			_ = os.Remove(path)
		}
	}
}

// diskCopy is a request to read a disk once.
type diskCopy struct {
	source       diskfile.Disk
	rawCopyPath  string // raw copy; "": none
	checksumPath string // "": none
	progress     func(transfer.Progress)
	// checkUnchanged is called after everything was read, and fails if the source has changed. Its error
	// leaves no file.
	checkUnchanged func() error
}

// copyDisk creates the files of a diskCopy; they get their names once they are complete.
func copyDisk(ctx context.Context, c diskCopy) (err error) {
	disk, err := c.source.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, disk.Close()) }()
	work := transfer.DiskCopy{From: disk, Progress: c.progress}
	for _, f := range []struct {
		path string
		file **os.File
	}{{c.checksumPath, &work.Checksums}, {c.rawCopyPath, &work.RawCopy}} {
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
	if err := c.checkUnchanged(); err != nil {
		return err
	}
	for _, path := range []string{c.checksumPath, c.rawCopyPath} {
		if path != "" {
			err = errors.Join(err, os.Rename(path+partSuffix, path))
		}
	}
	return err
}
