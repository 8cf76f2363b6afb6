package main

import (
	"context"
	"fmt"

	"github.com/buildyard/buildyard/test/netns"
	"github.com/buildyard/buildyard/test/rig"
)

// machine is a machine with a disk.
type machine struct {
	*netns.Machine
	dir string // its disk, a file system in memory
}

// addMachine makes a machine with a disk of so many MiB.
func addMachine(ctx context.Context, name string, host, diskMiB int, dir string) (*machine, error) {
	if err := rig.MakeDir(dir); err != nil {
		return nil, err
	}
	mount := fmt.Sprintf("size=%dm,mode=0755", diskMiB)
	if _, err := rig.Output(ctx, "", "mount", "-t", "tmpfs", "-o", mount, "tmpfs", dir); err != nil {
		return nil, err
	}
	m, err := netns.Add(ctx, name, host)
	return &machine{m, dir}, err
}

// remove removes the machine and its disk.
func (m *machine) remove(ctx context.Context) error {
	if err := m.Remove(ctx); err != nil {
		return err
	}
	_, err := rig.Output(ctx, "", "umount", "-l", m.dir)
	return err
}
