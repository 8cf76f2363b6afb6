package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/buildyard/buildyard/test/rig"
)

const (
	// volumeBytes bounds what a run writes. The image is sparse.
	volumeBytes = 24 << 30
	// mountScript mounts the image where no other process of this host sees it, and becomes the run.
	mountScript = `mount -o loop "$1" "$2" && shift 2 && exec "$@"`
	// endTime is how long a run that is interrupted may take to end its processes.
	endTime = time.Minute
)

// onVolume runs this program again with its data on a file system that can clone files, as APFS does: XFS in an image
// file. The mount ends with the run.
func onVolume(ctx context.Context, o options, args []string, out io.Writer) (ok bool, err error) {
	if os.Geteuid() != 0 {
		return false, errors.New("this test mounts file systems; run it as root")
	}
	dir, done, err := rig.WorkDir("mac", o.keep)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, done()) }()
	image, top, err := rig.MakeXFS(ctx, dir, volumeBytes)
	if err != nil {
		return false, err
	}
	self, err := os.Executable()
	if err != nil {
		return false, err
	}
	inner := append([]string{"--mount", "sh", "-c", mountScript, "sh", image, top, self, "-dir", top}, args...)
	cmd := exec.CommandContext(ctx, "unshare", inner...)
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // an interrupt is passed on once
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = endTime
	err = cmd.Run()
	if _, ended := errors.AsType[*exec.ExitError](err); ended && ctx.Err() == nil {
		return false, nil // it has said why
	}
	return err == nil, err
}
