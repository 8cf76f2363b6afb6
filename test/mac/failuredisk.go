package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/test/rig"
)

// onSmallDisk plays a case on another Mac, whose data is on a disk of a size, and which leaves some bytes of it free of
// templates.
func (a *act) onSmallDisk(ctx context.Context, name, size, reserve string, do func(*act) error) (err error) {
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
		err = do(&act{row: a.row, site: a.site, mac: m})
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
func smallDisk(ctx context.Context, a *act) error {
	return a.onSmallDisk(ctx, "small", "40m", "30M", func(a *act) error {
		return a.failing(ctx, client.StartRequest{}, "disk", "free")
	})
}

// fullDisk: the version and one VM fit, a second VM does not; the first one continues.
func fullDisk(ctx context.Context, a *act) error {
	return a.onSmallDisk(ctx, "full", "72m", "1M", func(a *act) error {
		first, err := a.run(ctx, client.StartRequest{}, "echo first >kept", stateStarted)
		if err != nil {
			return err
		}
		if err := a.failing(ctx, client.StartRequest{}, "no space left on device"); err != nil {
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
