package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/test/rig"
)

// onSmallDisk runs a case on another Mac, whose data is on a disk of a size, and which leaves some bytes of it free of
// templates.
func (a *caseRun) onSmallDisk(ctx context.Context, name, size, reserve string, do func(*caseRun) error) (err error) {
	data := filepath.Join(a.dir, name)
	if err := rig.MakeDir(data); err != nil {
		return err
	}
	if _, err := rig.Output(ctx, "", "mount", "-t", "tmpfs", "-o", "size="+size, name, data); err != nil {
		return fmt.Errorf("mount a small disk: %w", err)
	}
	m, err := a.joinMac(ctx, name, rig.NodeOptions{Reserve: reserve})
	if err == nil {
		err = m.awaitActive(ctx)
	}
	if err == nil {
		err = do(&caseRun{row: a.row, site: a.site, mac: m})
	}
	if err == nil {
		err = m.clean(ctx)
	}
	if m != nil && m.agent != nil {
		err = errors.Join(err, m.close())
	}
	_, gone := rig.Output(context.WithoutCancel(ctx), "", "umount", data)
	return errors.Join(err, gone)
}

// smallDisk: a version that does not fit is not pulled.
func smallDisk(ctx context.Context, a *caseRun) error {
	return a.onSmallDisk(ctx, "small", "40m", "30M", func(a *caseRun) error {
		return a.failing(ctx, client.StartRequest{}, "the version needs", "remove VMs or other files from the node")
	})
}

// fullDisk: the version and one VM fit, a second VM does not; the first one continues.
func fullDisk(ctx context.Context, a *caseRun) error {
	return a.onSmallDisk(ctx, "full", "120m", "1M", func(a *caseRun) error {
		first, err := a.run(ctx, client.StartRequest{}, "echo first >kept", stateStarted)
		if err != nil {
			return err
		}
		if err := a.fillDisk(payloadBytes / 2); err != nil {
			return err
		}
		err = a.failing(ctx, client.StartRequest{}, "no space left on device", "remove VMs or templates from the node")
		if err != nil {
			return err
		}
		in, err := a.awaitState(ctx, first.InstanceID, stateStarted)
		if err != nil {
			return err
		}
		_, runs := a.mac.find(roleVM, first.InstanceID)
		a.check(runs, "the first instance is %s and its VM runs", in.InstanceState)
		return a.terminate(ctx, first.InstanceID)
	})
}

// fillDisk leaves so many bytes free of the disk of the Mac's data.
func (a *caseRun) fillDisk(free int64) error {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(a.mac.data, &stat); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(a.mac.data, "filler"))
	if err != nil {
		return err
	}
	_, err = io.CopyN(f, rand.Reader, int64(stat.Bavail)*int64(stat.Bsize)-free)
	return errors.Join(err, f.Close())
}
