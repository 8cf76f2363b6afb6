package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
)

// pushTiny puts a template with an empty disk into the registry, for VMs that are
// simulated and never read it.
func (s *scene) pushTiny(ctx context.Context) (id string, err error) {
	return s.push(ctx, "tiny", "create", "--name", "tiny", "--disk-size", "16M", "--cpu", "1", "--ram", "256M")
}

// pushGuest puts the demo guest into the registry.
func (s *scene) pushGuest(ctx context.Context, disk string) (id string, err error) {
	return s.push(ctx, "guest", "import", disk, "--name", "guest", "--cpu", "1", "--ram", "256M")
}

// The templates of pushNoise.
const (
	noises    = 8
	noiseSize = 16 << 20
)

// pushNoise puts templates into the registry whose disks are noise: pulling one takes
// a moment, so that kills meet pulls.
func (s *scene) pushNoise(ctx context.Context) (ids []string, err error) {
	for i := range noises {
		name := fmt.Sprintf("noise%d", i)
		disk := filepath.Join(s.dir, name+".img")
		noise := make([]byte, noiseSize)
		for at := 0; at < len(noise); at += 8 {
			binary.LittleEndian.PutUint64(noise[at:], s.rng.Uint64())
		}
		if err := os.WriteFile(disk, noise, 0o600); err != nil {
			return nil, err
		}
		id, err := s.push(ctx, name, "import", disk, "--format", "raw", "--name", name, "--cpu", "1", "--ram", "256M")
		if err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// push makes a local template with the vm command and pushes it, as the owner of a
// node does.
func (s *scene) push(ctx context.Context, name string, vm ...string) (id string, err error) {
	program, home := filepath.Join(s.bins, "buildnode"), []string{"--data-dir", filepath.Join(s.dir, "author-"+name)}
	if _, err := output(ctx, "", program, slices.Concat([]string{"vm"}, vm, home)...); err != nil {
		return "", err
	}
	raw, err := output(ctx, "", program, append([]string{"vm", "list", "--output", "json"}, home...)...)
	if err != nil {
		return "", err
	}
	var list []struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal([]byte(raw), &list); err != nil || len(list) != 1 || list[0].ID == "" {
		return "", fmt.Errorf("the local templates are %q: one with an id was expected", raw)
	}
	_, err = output(ctx, "", program, slices.Concat([]string{"registry", "--remote", s.cloud.registry, "push", list[0].ID, "--tag", "v1"}, home)...)
	return list[0].ID, err
}

// finish ends the programs and keeps the history. QEMU processes that are left are
// killed last, after they were counted.
func (s *scene) finish() error {
	errs := []error{s.close(), s.history.write(filepath.Join(s.dir, "history.jsonl"))}
	left, err := qemus(s.dir)
	errs = append(errs, err)
	for _, q := range left {
		_, err := killQEMU(q, s.dir)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
