package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
)

// author is the data directory in which templates are made.
func (s *scene) author() string { return filepath.Join(s.dir, "author") }

// pushTiny puts a template with a tiny disk into the registry, for simulated VMs.
func (s *scene) pushTiny(ctx context.Context) (id string, err error) {
	return s.push(ctx, "create", "tiny", "--disk", "16MB", "--ram", "256M")
}

// pushGuest puts the demo guest into the registry.
func (s *scene) pushGuest(ctx context.Context, disk string) (id string, err error) {
	return s.push(ctx, "import", disk, "--name", "guest", "--ram", "256M", "--cpu", "1")
}

// push makes a local template and pushes it, as the owner of a node does.
func (s *scene) push(ctx context.Context, args ...string) (id string, err error) {
	program := filepath.Join(s.bins, "buildnode")
	if _, err := output(ctx, "", program, append(append([]string{"vm"}, args...), "--data-dir", s.author())...); err != nil {
		return "", err
	}
	raw, err := output(ctx, "", program, "vm", "list", "--output", "json", "--data-dir", s.author())
	if err != nil {
		return "", err
	}
	var list []struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal([]byte(raw), &list); err != nil || len(list) != 1 || list[0].ID == "" {
		return "", fmt.Errorf("list the local templates: %q: %w", raw, err)
	}
	_, err = output(ctx, "", program, "registry", "--remote", s.cloud.registry, "push", list[0].ID, "-t", "v1", "--data-dir", s.author())
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
