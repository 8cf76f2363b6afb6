package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/test/rig"
)

// disks has attacks on services whose disk is filled by another program.
var disks = family{name: "full disk", site: arrangement{none: true}, attacks: []attack{
	{"of the controller", fullController, false},
	{"of the registry", fullRegistry, false},
}}

// mount mounts a file system of some MB in memory on a new directory.
func mount(ctx context.Context, dir string, megabytes int) (done func() error, err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("%w: mounting a small file system needs root", rig.ErrSkip)
	}
	if _, err := rig.Output(ctx, "", "mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%dm,mode=0700", megabytes),
		"tmpfs", dir); err != nil {
		return nil, fmt.Errorf("%w: %w", rig.ErrSkip, err)
	}
	return func() error {
		_, err := rig.Output(context.WithoutCancel(ctx), "", "umount", "-l", dir)
		return err
	}, nil
}

// fill takes all space of a directory's file system, until the file is removed.
func fill(dir string) (file string, err error) {
	file = filepath.Join(dir, "filler")
	f, err := os.OpenFile(file, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return file, err
	}
	for size := 1 << 20; size >= 4<<10; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 2
		}
	}
	return file, f.Close()
}

// furnishOn starts services with a file system of their own below one of their directories.
func furnishOn(
	ctx context.Context, s *site, megabytes int, below func(*site) string,
) (own *site, done func() error, err error) {
	own = &site{arrangement: arrangement{nodes: 2}, dir: filepath.Join(s.dir,
		uuid.NewString()[:8]), programs: s.programs}
	unmount, err := mount(ctx, below(own), megabytes)
	if err != nil {
		return nil, nil, err
	}
	done = func() error { return errors.Join(own.close(), unmount()) }
	if err := own.open(ctx); err != nil {
		return nil, nil, errors.Join(err, done())
	}
	return own, done, nil
}

func fullController(ctx context.Context, s *site, o *outcome) {
	own, done, err := furnishOn(ctx, s, 96, (*site).dataDir)
	if err != nil {
		o.check(err)
		return
	}
	defer func() { o.check(done()) }()
	m, err := own.join(ctx, "node")
	o.check(err)
	pid := own.up.PID()
	filler, err := fill(own.dataDir())
	if err != nil {
		o.check(err)
		return
	}

	const sentence = "The disk of the data directory is full"
	for n := range 20 {
		for _, what := range [][2]string{
			{"POST /api/v1/group", fmt.Sprintf(`{"name":"g%d"}`, n)},
			{"POST /api/v1/vm", fmt.Sprintf(`{"vmid":%q,"group_id":%q}`, own.a, own.empty)},
		} {
			method, path, _ := strings.Cut(what[0], " ")
			a, err := own.rooted.send(ctx, method+" "+own.controller+path, what[1])
			if o.want(what[0], a, err, http.StatusServiceUnavailable); err == nil &&
				!strings.Contains(string(a.body), sentence) {
				o.fault("%s is refused with %.200s", what[0], a.body)
			}
		}
		for _, path := range []string{"/api/v1/vm", "/api/v1/node", "/api/v1/registry/vm"} {
			if a, err := own.rooted.send(ctx, "GET "+own.controller+path, ""); err != nil || a.code != http.StatusOK {
				o.fault("GET %s on a full disk is %d %.200s %v", path, a.code, a.body, err)
			}
		}
		if _, err := m.poll(ctx, nil); err != nil {
			o.fault("a node's poll on a full disk: %v", err)
		}
	}
	if a, err := own.rooted.send(ctx, "GET "+own.controller+"/readyz", ""); err != nil ||
		a.code != http.StatusServiceUnavailable {
		o.fault("readyz on a full disk is %d %v", a.code, err)
	}
	o.check(own.alarmed(ctx, api.AlarmStoreFull))
	own.recovers(ctx, o, filler, pid)
}

// alarmed waits for an alarm in the controller's status.
func (s *site) alarmed(ctx context.Context, name string) error {
	return s.await(ctx, "the alarm "+name, func() (bool, error) {
		var status api.ControllerStatus
		err := s.rooted.get(ctx, "GET "+s.controller+"/api/v1/status", nil, &status)
		return slices.ContainsFunc(status.ActiveAlarms, func(a api.Alarm) bool { return a.Name == name }), err
	})
}

// recovers returns the space back and runs a job.
func (s *site) recovers(ctx context.Context, o *outcome, filler string, pid int) {
	o.check(os.Remove(filler))
	began := time.Now()
	o.check(s.await(ctx, "services that resume free space", func() (bool, error) {
		a, err := s.rooted.send(ctx, "GET "+s.controller+"/readyz", "")
		return err == nil && a.code == http.StatusOK, nil
	}))
	ready := time.Since(began)
	s.bystand(ctx).end(o)
	if !s.up.Running() || s.up.PID() != pid {
		o.fault("the service has ended: %s", s.up.Tail())
	}
	if text := s.up.Tail(); strings.Contains(text, "goroutine ") || strings.Contains(text, "panic:") {
		o.fault("the service has printed a stack: %.500s", text)
	}
	o.effect("ready %.1f s after space returned", ready.Seconds())
}

func fullRegistry(ctx context.Context, s *site, o *outcome) {
	own, done, err := furnishOn(ctx, s, 64, (*site).storage)
	if err != nil {
		o.check(err)
		return
	}
	defer func() { o.check(done()) }()
	pid := own.up.PID()
	filler, err := fill(own.storage())
	if err != nil {
		o.check(err)
		return
	}

	for n := range 20 {
		_, err := own.push(ctx, "", fmt.Sprint("more ", n), "v1")
		if err == nil {
			o.take("pushed")
			o.fault("a push is taken on a full disk")
		} else if o.refuse("refused"); !strings.Contains(err.Error(), "disk") &&
			!strings.Contains(err.Error(), "space") {
			o.fault("a push on a full disk is refused with %v", err)
		}
		a, err := own.rooted.send(ctx, "PUT "+own.registry+"/registry/files/more", strings.Repeat("x", 1<<20))
		o.want("an upload on a full disk", a, err, http.StatusServiceUnavailable, http.StatusInsufficientStorage)
		for _, path := range []string{"/registry/v2/vm", "/registry/v2/pull?id=" + own.a, "/registry/vm/info?id=" +
			own.b} {
			if a, err := own.rooted.send(ctx, "GET "+own.registry+path, ""); err != nil || a.code != http.StatusOK {
				o.fault("GET %s on a full disk is %d %.200s %v", path, a.code, a.body, err)
			}
		}
	}
	own.bystand(ctx).end(o) // starts go on
	o.check(own.alarmed(ctx, api.AlarmRegistryDisk))
	own.recovers(ctx, o, filler, pid)
	o.check(own.await(ctx, "a push after space returned", func() (bool, error) {
		_, err := own.push(ctx, "", "again", "v1")
		return err == nil, nil
	}))
}
