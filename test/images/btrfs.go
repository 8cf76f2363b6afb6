package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/buildyard/buildyard/internal/scan/disk"
	"github.com/buildyard/buildyard/internal/scan/fs/treetest"
	"github.com/buildyard/buildyard/test/rig"
)

// btrfsSubject is a file system that mkfs.btrfs makes and the kernel fills from a directory.
type btrfsSubject struct {
	entries int
	options []string
	mount   string // options of the mount, such as a compression; "" = none
	table   bool   // on a partition of a disk
}

func (x btrfsSubject) make(ctx context.Context, _ *stage, dir string) (*made, error) {
	tree, image := filepath.Join(dir, "tree"), filepath.Join(dir, "image")
	if err := os.Mkdir(tree, 0o755); err != nil {
		return nil, err
	}
	if err := treetest.Make(tree, x.entries); err != nil {
		return nil, err
	}
	want, err := treetest.ListDir(tree)
	if err == nil {
		err = x.write(ctx, dir, tree, image)
	}
	if err == nil {
		_, err = rig.Output(ctx, dir, sbin("btrfs"), "check", image)
	}
	if err == nil && x.table {
		image, err = onTable(dir, image)
	}
	if err != nil {
		return nil, err
	}
	return &made{dir: dir, raw: image, compare: func(vols []disk.Volume, r *row) error {
		if len(vols) != 1 || vols[0].Format != "btrfs" || (vols[0].Partition == 0) == x.table {
			return fmt.Errorf("volumes %+v", vols)
		}
		files, err := vols[0].Open()
		if err != nil {
			return err
		}
		got, err := treetest.ListFS(files)
		if err != nil {
			return err
		}
		equal, diffs := treetest.Differences(want, got)
		r.Equal, r.All = equal, len(want)
		r.Differences = append(r.Differences, diffs...)
		return nil
	}}, nil
}

// write makes the file system of a tree.
func (x btrfsSubject) write(ctx context.Context, dir, tree, image string) error {
	if err := rig.FormatBtrfs(ctx, image, ext4Size, x.options...); err != nil {
		return err
	}
	if x.mount == "" {
		return treetest.Fill(ctx, image, tree, "true")
	}
	empty := filepath.Join(dir, "empty")
	if err := os.Mkdir(empty, 0o755); err != nil {
		return err
	}
	return treetest.Fill(ctx, image, empty, "mount -o remount,"+x.mount+" .\ncp -a '"+tree+"/.' .")
}
