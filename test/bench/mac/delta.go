package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/transfer"
	"github.com/buildyard/buildyard/test/rig"
)

// The template whose next tag is applied, and its disk.
const (
	deltaTemplate = "00000000-0000-4000-8000-000000000003"
	deltaDisk     = "disk.img"
	baseTag       = "base"
	nextTag       = "next"
)

// delta is a template with two tags in the registry, and their disks.
type delta struct {
	client     *transfer.Client
	volume     *volume
	dir        string // for all files
	base, next string // paths of the disks
	chainID    string // of the base
	runs       []run  // that next changes
}

// measureDelta compares pulls of a next tag with writing its changes.
func (b *bench) measureDelta(ctx context.Context, c *cloud) (err error) {
	client, err := transfer.New(transfer.Options{BaseURL: c.Registry})
	if err != nil {
		return err
	}
	defer client.Close()
	dir := filepath.Join(b.mac.dir, "delta")
	d := &delta{
		client: client, volume: &volume{b.mac.dir}, dir: dir, base: filepath.Join(dir, "base.img"),
		next: filepath.Join(dir, "next.img"),
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := d.publish(ctx); err != nil {
		return err
	}
	b.Say("pushed %d MiB, and a next tag that changes %d MiB in %d runs", baseBytes>>20, changedBytes>>20, len(d.runs))

	var all pairs
	for i := range deltaRounds {
		pulled, written, err := inTurns(i, func() (time.Duration, error) { return d.pull(ctx) },
			func() (time.Duration, error) { return d.write(ctx) })
		if err != nil {
			return err
		}
		all.add(pulled, written)
		b.Add(rowDelta, float64(pulled)/float64(written))
		b.Note(rowDelta, "%s", &all)
	}
	b.Say("delta: %s", &all)
	return nil
}

// publish makes both disks and pushes them.
func (d *delta) publish(ctx context.Context) error {
	if err := rig.MakeDir(d.dir); err != nil {
		return err
	}
	d.runs = newRuns(baseBytes, changedBytes)
	if err := makeBase(d.base, baseBytes); err != nil {
		return err
	}
	if err := cloneAndWrite(d.base, d.next, d.runs); err != nil {
		return err
	}
	root, err := d.push(ctx, baseTag, transfer.PushFile{Disk: &diskfile.Disk{Path: d.base}})
	if err != nil {
		return err
	}
	d.chainID = root
	_, err = d.push(ctx, nextTag, transfer.PushFile{
		Disk:   &diskfile.Disk{Path: d.next},
		Parent: &transfer.PushParent{ChainID: root, Disk: &diskfile.Disk{Path: d.base}},
	})
	return err
}

// push publishes a disk as a tag and returns the digest of its layer.
func (d *delta) push(ctx context.Context, tag string, f transfer.PushFile) (digest string, err error) {
	f.Name, f.Kind = deltaDisk, api.FileDisk
	digests := map[string]string{}
	_, err = d.client.Push(ctx, transfer.PushOptions{
		Request: api.PushRequest{ID: deltaTemplate, Name: "delta", Tag: tag, Config: json.RawMessage(`{}`)},
		Files:   []transfer.PushFile{f}, LayerDigests: digests,
	})
	return digests[deltaDisk], err
}

// pull pulls the next tag onto a clone of the base, as the node's cache does, and checks the result.
func (d *delta) pull(ctx context.Context) (took time.Duration, err error) {
	dir := filepath.Join(d.dir, "pull")
	if err := rig.MakeDir(dir); err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	var result transfer.PullResult
	took, err = d.timed(ctx, func() (err error) {
		result, err = d.client.Pull(ctx, transfer.PullOptions{
			Ref: transfer.VersionRef{ID: deltaTemplate, Tag: nextTag}, Dir: dir, AllowOverlays: true,
			LocalContent: map[string]diskfile.Disk{d.chainID: {Path: d.base}},
		})
		return err
	})
	switch {
	case err != nil:
		return took, err
	case len(result.Files) != 1 || result.Files[0].Form != transfer.FormFlat:
		return took, fmt.Errorf("the pull did not build a raw disk: %+v", result.Files)
	case result.TransferredBytes > changedBytes:
		return took, fmt.Errorf("the pull transferred %d bytes, more than was changed", result.TransferredBytes)
	}
	return took, compareFiles(filepath.Join(dir, deltaDisk), d.next)
}

// write writes the same disk without a registry.
func (d *delta) write(ctx context.Context) (took time.Duration, err error) {
	path := filepath.Join(d.dir, "written.img")
	took, err = d.timed(ctx, func() error { return cloneAndWrite(d.base, path, d.runs) })
	return took, errors.Join(err, os.Remove(path))
}

// timed measures work that begins with nothing left to be written.
func (d *delta) timed(ctx context.Context, work func() error) (time.Duration, error) {
	if err := d.volume.settle(ctx); err != nil {
		return 0, err
	}
	began := time.Now()
	err := work()
	return time.Since(began), err
}
