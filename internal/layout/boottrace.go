package layout

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// Boot traces of a version are in the template's directory. They are hints: a file may be damaged or lost, and a shared
// storage does not have them.
//
//	<template uuid>/.traces/<content id>.json
const (
	tracesDir   = ".traces"
	traceSuffix = ".json"
	// maxTraceBytes bounds a file of traces.
	maxTraceBytes = 16 << 20
)

func tracesPath(id string) string { return path.Join(TemplatesDir, id, tracesDir) }

func tracePath(id, content string) string { return path.Join(tracesPath(id), content+traceSuffix) }

// BootTraces returns the stored traces of a content; fs.ErrNotExist when there are none.
func (d *Dir) BootTraces(id, content string) ([]byte, error) {
	return d.readFile(tracePath(id, content), maxTraceBytes)
}

// SaveBootTraces replaces the traces of a content, and removes those of contents that isLive does not report.
func (d *Dir) SaveBootTraces(id, content string, raw []byte, isLive func(content string) bool) error {
	if !isHexOfLength(content, 64) {
		return fmt.Errorf("%q is not a content ID", content)
	}
	if err := d.MkdirAll(tracesPath(id)); err != nil {
		return err
	}
	if err := d.WriteFile("trace", tracePath(id, content), raw); err != nil {
		return err
	}
	entries, err := d.ReadDir(tracesPath(id))
	if err != nil {
		return fmt.Errorf("list stored boot traces: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if old := strings.TrimSuffix(e.Name(), traceSuffix); old != content && !isLive(old) {
			err := d.root.Remove(path.Join(tracesPath(id), e.Name()))
			if !errors.Is(err, fs.ErrNotExist) {
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}
