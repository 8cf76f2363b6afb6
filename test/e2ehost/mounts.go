package main

import (
	"context"
	"fmt"
	"os"
	"time"
)

// mounts mounts file systems while the host is watched, and installs there immediately.
func (a *useAct) mounts(ctx context.Context) {
	image := a.s.back("disk.img")
	a.s.try("a disk that is mounted", func(r *row) error {
		f, err := os.Create(image)
		if err != nil {
			return err
		}
		if err := f.Truncate(64 << 20); err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
		if _, err := a.s.sh(ctx, "", "/usr/sbin/mkfs.ext4", "-q", "-F", image); err != nil {
			return err
		}
		return a.mount(ctx, r, a.s.host("mnt", "disk"), "-o", "loop", image)
	})
	a.s.try("memory that is mounted",
		func(r *row) error { return a.mount(ctx, r, a.s.host("mnt", "memory"), "-t", "tmpfs", "none") })
}

// mount mounts a file system, installs there, and unmounts it again.
func (a *useAct) mount(ctx context.Context, r *row, at string, how ...string) error {
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	if _, err := a.s.sh(ctx, "", append(append([]string{"mount"}, how...), at)...); err != nil {
		return err
	}
	mounted := true
	a.s.atEnd(func() error {
		if !mounted {
			return nil
		}
		_, err := a.s.sh(context.WithoutCancel(ctx), "", "umount", "--lazy", at)
		return err
	})
	rec := newRecord()
	for _, b := range installedBad {
		if err := writeTree(at+"/"+b.kind, b.files()); err != nil {
			return err
		}
		if err := rec.installed("cp", time.Time{}, b.at(at+"/"+b.kind)); err != nil {
			return err
		}
	}
	if err := a.follow.settle(ctx, rec, at); err != nil {
		return err
	}
	n, worst := a.follow.compare(r, rec.there())
	r.Says = says(*r, n, worst)
	st, err := a.v.status(ctx)
	if err != nil {
		return err
	}
	method := ""
	for _, m := range st.Mounts {
		if m.Path == at {
			method = m.Method
		}
	}
	r.check(method == "fanotify", "the status says that it is watched by %q", method)
	_, err = a.s.sh(ctx, "", "umount", at)
	r.check(err == nil, "it cannot be unmounted: %v", err)
	mounted = err != nil
	began := time.Now()
	for t := range rec.there() {
		rec.removed("umount", began, t)
	}
	if err := a.follow.settle(ctx, rec, at); err != nil {
		return err
	}
	left := a.follow.kept(at)
	r.check(len(left) == 0, "%d packages are still in the report after it was unmounted", len(left))
	r.Says += fmt.Sprintf(", left %.1f s after umount", time.Since(began).Seconds())
	return nil
}
