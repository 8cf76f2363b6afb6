package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/buildyard/buildyard/api"
	"github.com/buildyard/buildyard/internal/diskfile"
	"github.com/buildyard/buildyard/internal/qcow2"
	"github.com/buildyard/buildyard/internal/registry"
	"github.com/buildyard/buildyard/internal/rest"
	"github.com/buildyard/buildyard/internal/rest/registryrest"
	"github.com/buildyard/buildyard/internal/transfer"
)

const (
	templateID = "11111111-2222-4333-8444-555555555555"
	storageDir = "storage"

	// A tag rewrites a chunk in every stride of the disk, each tag different ones: 3 % of it.
	stride = 2 << 20
	piece  = 64 << 10
)

// inStorage returns the source of the template.
func inStorage(dir string) []string {
	return []string{"registry_template:" + templateID, "-s", filepath.Join(dir, storageDir)}
}

// makeTemplate makes a template of the ext4 image.
func makeTemplate(layers int) func(context.Context, *bench, works) error {
	return func(ctx context.Context, _ *bench, w works) error {
		return apart(ctx, makingTemplate, w.to, w.ext4, strconv.Itoa(layers))
	}
}

// writeTemplate pushes an image to a registry in a directory, as the first of several tags. It
// pushes as many tags as layers are requested, the others each with only its rewritten chunks.
func writeTemplate(ctx context.Context, dir, image string, layers int) error {
	return withRegistry(ctx, dir, func(c *transfer.Client) error { return pushLayers(ctx, c, dir, image, layers) })
}

// withRegistry runs a registry in a directory while do uses it.
func withRegistry(ctx context.Context, dir string, do func(*transfer.Client) error) (err error) {
	reg, err := registry.Open(ctx, registry.Options{Base: filepath.Join(dir, storageDir), Version: "bench"})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, reg.Close()) }()
	server := httptest.NewServer(rest.Handler(registryrest.Routes(reg), slog.New(slog.DiscardHandler)))
	defer server.Close()
	c, err := transfer.New(transfer.Options{BaseURL: server.URL, IdleTimeout: time.Minute})
	if err != nil {
		return err
	}
	defer c.Close()
	return do(c)
}

func pushLayers(ctx context.Context, c *transfer.Client, dir, image string, layers int) error {
	disk := diskfile.Disk{Path: image}
	tip, err := push(ctx, c, "v0", disk, nil)
	for n := 1; n < layers && err == nil; n++ {
		overlay := filepath.Join(dir, fmt.Sprintf("overlay-%d.qcow2", n))
		if err := rewrite(ctx, overlay, image, strided(int64(n)*stride/int64(layers))); err != nil {
			return err
		}
		defer os.Remove(overlay)
		disk.Overlays = append(disk.Overlays, overlay)
		tip, err = push(ctx, c, fmt.Sprintf("v%d", n), disk, &transfer.PushParent{ChainID: tip, FileCount: n})
	}
	return err
}

// push pushes a tag and returns the digest of its disk's content.
func push(
	ctx context.Context, c *transfer.Client, tag string, disk diskfile.Disk, parent *transfer.PushParent,
) (string, error) {
	const file = "disk.img"
	o := transfer.PushOptions{
		Request: api.PushRequest{
			ID: templateID, Name: "bench", Tag: tag, Config: json.RawMessage(`{"hard_drives":[{"file":"disk.img"}]}`),
		},
		Files:        []transfer.PushFile{{Name: file, Kind: api.FileDisk, Disk: &disk, Parent: parent}},
		LayerDigests: map[string]string{},
	}
	if _, err := c.Push(ctx, o); err != nil {
		return "", fmt.Errorf("push %s: %w", tag, err)
	}
	return o.LayerDigests[file], nil
}

// strided yields the offset of a chunk of each stride of a disk, from the first on.
func strided(first int64) func(size int64) iter.Seq[int64] {
	return func(size int64) iter.Seq[int64] {
		return func(yield func(int64) bool) {
			for off := first / piece * piece; off+piece <= size && yield(off); off += stride {
			}
		}
	}
}

// rewrite writes an overlay with chunks of the disk, whose bytes may be unchanged: reading costs the same as
// if a guest had changed them.
func rewrite(ctx context.Context, to, disk string, chunks func(size int64) iter.Seq[int64]) error {
	from, err := os.Open(disk)
	if err != nil {
		return err
	}
	defer from.Close()
	st, err := from.Stat()
	if err != nil {
		return err
	}
	builder := qcow2.NewBuilder(st.Size())
	for off := range chunks(st.Size()) {
		if err := builder.Add(qcow2.Range{Off: off, Len: piece, Kind: qcow2.Data}); err != nil {
			return err
		}
	}
	layout, err := builder.Layout()
	if err != nil {
		return err
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	return errors.Join(layout.CopyData(ctx, out, from), layout.Finish(out), out.Close())
}
