package main

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/transfer"
)

const (
	idA = "aaaaaaaa-0000-4000-8000-000000000001"
	idB = "bbbbbbbb-0000-4000-8000-000000000002"
)

// diskFile is a file of random bytes that is pushed as a disk.
type diskFile struct {
	path string
	size int64
	sum  [sha256.Size]byte
}

// makeDisk writes a disk whose content depends on the seed.
func (s *stage) makeDisk(seed uint64, size int64) (diskFile, error) {
	d := diskFile{path: filepath.Join(s.dir, fmt.Sprintf("disk-%d-%d.img", seed, size)), size: size}
	f, err := os.Create(d.path)
	if err != nil {
		return d, err
	}
	h := sha256.New()
	var key [32]byte
	key[0], key[1] = byte(seed), byte(seed>>8)
	_, err = io.CopyN(io.MultiWriter(f, h), rand.NewChaCha8(key), size)
	d.sum = [sha256.Size]byte(h.Sum(nil))
	return d, errors.Join(err, f.Close())
}

// push pushes a disk as a version.
func (r *registryProcess) push(ctx context.Context, id, tag string, d diskFile) error {
	_, err := r.client.Push(ctx, transfer.PushOptions{
		Request: api.PushRequest{
			ID: id, Name: "template " + id[:1], Tag: tag, Config: json.RawMessage(`{"ram":"1G"}`),
			ResumeKey: id + tag,
		},
		Files: []transfer.PushFile{{Name: "disk.img", Path: d.path, Kind: api.FileDisk}},
	})
	return err
}

// pull pulls a version into a new directory and compares its disk.
func (s *stage) pull(ctx context.Context, r *registryProcess, id, tag string, want diskFile) error {
	dir, err := os.MkdirTemp(s.caseDir, "pull-")
	if err != nil {
		return err
	}
	_, err = r.client.Pull(ctx, transfer.PullOptions{Ref: transfer.VersionRef{ID: id, Tag: tag}, Dir: dir})
	if err == nil {
		err = compareDisk(filepath.Join(dir, "disk.img"), want)
	}
	return errors.Join(err, os.RemoveAll(dir))
}

func compareDisk(path string, want diskFile) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	h := sha256.New()
	_, err = io.Copy(h, f)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if [sha256.Size]byte(h.Sum(nil)) != want.sum {
		return fmt.Errorf("the disk %s differs from what was pushed", path)
	}
	return nil
}

// checkAll pulls versions and returns an error unless the template has exactly these.
func (s *stage) checkAll(ctx context.Context, r *registryProcess, id string, want map[string]diskFile) error {
	detail, err := r.client.TemplateDetail(ctx, id)
	if err != nil {
		return err
	}
	if len(detail.Versions) != len(want) {
		return fmt.Errorf("template %s has %d versions, not %d", id, len(detail.Versions), len(want))
	}
	for _, v := range detail.Versions {
		d, ok := want[v.Tag]
		if !ok {
			return fmt.Errorf("template %s has the version %s", id, v.Tag)
		}
		if err := s.pull(ctx, r, id, v.Tag, d); err != nil {
			return fmt.Errorf("version %s: %w", v.Tag, err)
		}
	}
	return nil
}
