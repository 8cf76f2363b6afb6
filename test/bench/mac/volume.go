package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

const (
	// volumeBytes is the size of the file system. Its file is sparse.
	volumeBytes = 160 << 30
	// neededBytes is what a run writes at most, and some to spare.
	neededBytes = 12 << 30
	mountLimit  = time.Minute
	endLimit    = time.Minute
)

// volume is a mounted XFS file system in a file, which stands for the APFS volume of a Mac.
type volume struct {
	dir string // where it is mounted
}

// mountVolume makes the file system below a directory.
func mountVolume(ctx context.Context, dir string) (*volume, error) {
	if err := checkFreeSpace(dir); err != nil {
		return nil, err
	}
	// An interrupt must not leave it unknown whether something is mounted.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), mountLimit)
	defer cancel()
	image, top, err := rig.MakeXFS(ctx, dir, volumeBytes)
	if err != nil {
		return nil, err
	}
	if _, err := rig.Output(ctx, "", "mount", "-o", "loop", image, top); err != nil {
		return nil, fmt.Errorf("the file system with clones could not be mounted: %w; run this as root on a host "+
			"whose kernel has XFS and loop devices", err)
	}
	return &volume{top}, nil
}

// checkFreeSpace refuses a directory without the space that a run needs.
func checkFreeSpace(dir string) error {
	var st syscall.Statfs_t
	if err := syscall.Statfs(dir, &st); err != nil {
		return fmt.Errorf("free space of %s: %w", dir, err)
	}
	if free := int64(st.Bavail) * int64(st.Bsize); free < neededBytes {
		return fmt.Errorf("%s has %d GiB free, a run needs %d; set TMPDIR to another place", filepath.Dir(dir),
			free>>30, int64(neededBytes)>>30)
	}
	return nil
}

// settle writes everything to stable storage, so that what one measurement wrote is not written in the next.
func (v *volume) settle(ctx context.Context) error {
	_, err := rig.Output(ctx, "", "sync", "-f", v.dir)
	return err
}

// close ends the processes that still use the file system, and unmounts it. It has a separate time limit,
// since the run may have been ended.
func (v *volume) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endLimit)
	defer cancel()
	killed, err := killUsers(ctx, v.dir)
	if len(killed) > 0 {
		err = errors.Join(err, fmt.Errorf("processes of guests had to be killed: %s", strings.Join(killed, ", ")))
	}
	_, failure := rig.Output(ctx, "", "umount", v.dir)
	if failure != nil { // it vanishes with the last process that uses it
		_, lazy := rig.Output(ctx, "", "umount", "-l", v.dir)
		err = errors.Join(err, failure, lazy)
	}
	return err
}
