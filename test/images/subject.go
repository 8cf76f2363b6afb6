package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/buildyard/buildyard/internal/scan/disk"
	"github.com/buildyard/buildyard/internal/scan/fs/hfsplus/hfsplustest"
)

// subject is a disk that is read in several formats. Further subjects are further elements of
// subjects.
type subject struct {
	name      string
	make      func(ctx context.Context, s *stage, dir string) (*made, error)
	forms     []form
	witnesses []witness
}

var subjects = []subject{
	{"ext4", ext4Subject{entries: 10_000, options: []string{"-t", "ext4"}}.make, allForms, []witness{debugfs}},
	{"ext4 on GPT", ext4Subject{entries: 10_000, options: []string{"-t", "ext4"}, table: true}.make, allForms, nil},
	{
		"ext4 indexed", ext4Subject{entries: 3000, options: []string{"-t", "ext4"}, index: true}.make, rawForm,
		[]witness{debugfs},
	},
	{
		"ext4 1k", ext4Subject{entries: 3000, options: []string{"-t", "ext4", "-b", "1024"}}.make, rawForm,
		[]witness{debugfs},
	},
	{"ext4 64k", ext4Subject{entries: 3000, options: []string{"-t", "ext4", "-b", "65536"}}.make, rawForm, nil},
	{"ext4 inline", ext4Subject{
		entries: 10_000, options: []string{"-t", "ext4", "-O", "inline_data"},
		inline: true,
	}.make, rawForm, []witness{debugfs}},
	{"ext4 without checksums", ext4Subject{
		entries: 3000, options: []string{"-t", "ext4", "-O", "^metadata_csum,^64bit"},
	}.make, rawForm, []witness{debugfs}},
	{"ext3", ext4Subject{entries: 3000, options: []string{"-t", "ext3"}}.make, rawForm, []witness{debugfs}},
	{
		"ext2", ext4Subject{entries: 3000, options: []string{"-t", "ext2", "-b", "1024"}}.make, rawForm,
		[]witness{debugfs},
	},
	{"xfs", xfsSubject{entries: 10_000}.make, allForms, []witness{xfsDB}},
	{"xfs on GPT", xfsSubject{entries: 3000, table: true}.make, rawForm, nil},
	{
		"xfs 1k", xfsSubject{
			entries: 10_000, options: []string{"-b", "size=1024", "-i", "nrext64=1", "-m", "rmapbt=1"},
		}.make, rawForm, []witness{xfsDB},
	},
	{"xfs 64k", xfsSubject{entries: 3000, options: []string{"-b", "size=65536"}}.make, rawForm, []witness{xfsDB}},
	{
		"xfs directories of 64k", xfsSubject{entries: 10_000, options: []string{"-n", "size=65536"}}.make, rawForm,
		[]witness{xfsDB},
	},
	{
		"xfs older features", xfsSubject{
			entries: 3000, options: []string{"-i", "sparse=0", "-m", "bigtime=0,reflink=0"},
		}.make, rawForm, []witness{xfsDB},
	},
	{
		"xfs_version_4", xfsSubject{entries: 3000, options: []string{"-m", "crc=0"}, listed: true}.make, rawForm,
		[]witness{xfsDB},
	},
	{
		"xfs_without_types", xfsSubject{
			entries: 3000, options: []string{"-m", "crc=0", "-n", "ftype=0"}, listed: true,
		}.make, rawForm, nil,
	},
	{"btrfs", btrfsSubject{entries: 10_000}.make, allForms, nil},
	{"btrfs on GPT", btrfsSubject{entries: 3000, table: true}.make, rawForm, nil},
	{"btrfs zlib", btrfsSubject{entries: 3000, mount: "compress-force=zlib"}.make, rawForm, nil},
	{"btrfs lzo", btrfsSubject{entries: 3000, mount: "compress-force=lzo"}.make, rawForm, nil},
	{"btrfs zstd", btrfsSubject{entries: 3000, mount: "compress-force=zstd"}.make, rawForm, nil},
	{
		"btrfs nodes of 4k", btrfsSubject{
			entries: 10_000, options: []string{"-n", "4096", "--csum", "blake2"},
		}.make, rawForm, nil,
	},
	{"hfsplus", hfsSubject{entries: 10_000}.make, rawForm, []witness{sevenZip}},
	{
		"hfsplus_exact", hfsSubject{
			entries: 3000, volume: hfsplustest.Volume{IsExact: true, BlockSize: 512, NodeSize: 4096},
		}.make, rawForm, []witness{sevenZip},
	},
	{"hfsplus on Apple map", hfsSubject{entries: 2000, table: true}.make, appleForms, nil},
	{"apfs_test", apfsTest, allForms, []witness{fsapfsinfo}},
	{"apfs_mac_written", apfsMac, allForms, []witness{fsapfsinfo}},
}

// made is a subject as a raw file, and how to compare its volumes.
type made struct {
	dir, raw string
	compare  func(vols []disk.Volume, r *row) error
}

// witness is another program that reads the same.
type witness struct {
	name  string
	agree func(ctx context.Context, d *made, r *row) error
}

// opened is a disk in some format.
type opened struct {
	io.ReaderAt
	size  int64
	close func() error
}

// form tests a subject in a format: its bytes are those of the raw file, and its trees the original
// ones.
func (s *stage) form(ctx context.Context, f form, d *made, r *row) (err error) {
	o, err := f.open(ctx, d)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, o.close()) }()
	if err := sameBytes(d.raw, o); err != nil {
		return err
	}
	vols, skipped, err := disk.VolumesWithKeys(ctx, o, o.size, nil)
	if err != nil {
		return err
	}
	for _, p := range skipped {
		r.Differences = append(r.Differences, fmt.Sprintf("skipped: %s: %s", p.Name, p.Reason))
	}
	for _, v := range vols {
		for _, n := range v.Notes {
			r.Differences = append(r.Differences, "note: "+n)
		}
	}
	return d.compare(vols, r)
}

// sameBytes compares a disk with its raw file.
func sameBytes(raw string, o opened) error {
	f, err := os.Open(raw)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	if st.Size() != o.size {
		return fmt.Errorf("it has %d bytes instead of %d", o.size, st.Size())
	}
	a, b := make([]byte, 1<<20), make([]byte, 1<<20)
	for at := int64(0); at < o.size; at += int64(len(a)) {
		n := min(int64(len(a)), o.size-at)
		if _, err := f.ReadAt(a[:n], at); err != nil {
			return err
		}
		if got, err := o.ReadAt(b[:n], at); int64(got) < n {
			return fmt.Errorf("at %d: %w", at, err)
		}
		if !bytes.Equal(a[:n], b[:n]) {
			return fmt.Errorf("its bytes differ near %d", at)
		}
	}
	return nil
}
