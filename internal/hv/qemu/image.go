package qemu

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/buildyard/buildyard/internal/hv"
)

const (
	imageTool        = "qemu-img"
	imageInfoTimeout = 30 * time.Second // info, create
	convertTimeout   = 2 * time.Hour    // convert
	maxToolOutput    = 1 << 20
)

// Image describes a disk image file.
type Image struct {
	Format      string `json:"format"`
	VirtualSize int64  `json:"virtual-size"` // bytes the guest sees
	ActualSize  int64  `json:"actual-size"`  // bytes on the host's disk
}

// ImageInfo describes the image at path, which is read as format ("raw", "qcow2"), whatever its
// header claims. An image that refers to other files is refused with hv.ErrRefused.
func ImageInfo(ctx context.Context, path, format string) (Image, error) {
	f, _, err := openBase(hv.Disk{Path: path, Format: format})
	if err != nil {
		return Image{}, err
	}
	defer f.Close()
	out, err := runTool(ctx, imageInfoTimeout, imageTool, "info", "--output=json", "-f", format, "--", path)
	if err != nil {
		return Image{}, err
	}
	var i Image
	if err := json.Unmarshal(out, &i); err != nil {
		return Image{}, fmt.Errorf("%s info: %w", imageTool, err)
	}
	return i, nil
}

// CreateDisk creates an empty image of size bytes at path, which must not exist.
func CreateDisk(ctx context.Context, path, format string, size int64) error {
	if format != "raw" && format != "qcow2" {
		return hv.RefusedError("format %q: raw or qcow2", format)
	}
	if size <= 0 || size%512 != 0 {
		return hv.RefusedError("%d bytes: a disk is a positive multiple of 512", size)
	}
	return writeAtomically(path, func(part string) error {
		_, err := runTool(ctx, imageInfoTimeout, imageTool, "create", "-q", "-f", format, "--", part,
			strconv.FormatInt(size, 10))
		return err
	})
}

// Convert copies the image src into a new image at dst, which must not exist.
// It takes as long as the data needs; without a deadline in ctx, two hours.
func Convert(ctx context.Context, src hv.Disk, dst hv.Disk) error {
	if dst.Format != "raw" && dst.Format != "qcow2" {
		return hv.RefusedError("format %q: raw or qcow2", dst.Format)
	}
	f, _, err := openBase(src)
	if err != nil {
		return err
	}
	defer f.Close()
	return writeAtomically(dst.Path, func(part string) error {
		_, err := runTool(ctx, convertTimeout, imageTool, "convert", "-q", "-f", src.Format, "-O", dst.Format, "--",
			src.Path, part)
		return err
	})
}

// CreateOverlay creates an empty overlay of size bytes. It does not name its backing file: QEMU
// gets that at each start. With extended L2 entries a 4 KiB write costs 4 KiB, and saving stores
// only what changed.
func CreateOverlay(ctx context.Context, path string, size int64) error {
	return writeAtomically(path, func(part string) error {
		_, err := runTool(ctx, imageInfoTimeout, imageTool, "create", "-q", "-f", "qcow2",
			"-o", "extended_l2=on,cluster_size=128k", "--", part, strconv.FormatInt(size, 10))
		return err
	})
}

// writeAtomically has write fill a temporary file next to path and renames it, so that the file at path is
// complete.
func writeAtomically(path string, write func(part string) error) error {
	if _, err := os.Lstat(path); err == nil {
		return hv.RefusedError("%s exists", path)
	}
	part := path + ".part"
	err := write(part)
	if err == nil {
		err = os.Rename(part, path)
	}
	if err != nil {
		_ = os.Remove(part)
		return err
	}
	return syncDir(filepath.Dir(path))
}

// runTool runs a program of the QEMU package, limited in time and output, without this process's
// environment.
func runTool(ctx context.Context, most time.Duration, name string, args ...string) ([]byte, error) {
	if _, bounded := ctx.Deadline(); !bounded || most < convertTimeout {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, most)
		defer cancel()
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = toolEnv()
	cmd.WaitDelay = time.Second
	var out, text limitedBuffer
	cmd.Stdout, cmd.Stderr = &out, &text
	err := cmd.Run()
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return nil, fmt.Errorf("%s is not installed", name)
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s: %w", filepath.Base(name), ctx.Err())
	case err != nil:
		return nil, fmt.Errorf("%s %s: %w: %s", filepath.Base(name), args[0], err, strings.TrimSpace(text.String()))
	}
	return out.Bytes(), nil
}

// toolEnv is the environment of QEMU and its tools: it has none of this process's secrets.
func toolEnv() []string {
	return []string{"PATH=/usr/local/bin:/usr/bin:/bin:/opt/homebrew/bin", "LC_ALL=C"}
}

// limitedBuffer keeps the first maxToolOutput bytes written to it.
type limitedBuffer struct{ bytes.Buffer }

func (b *limitedBuffer) Write(p []byte) (int, error) {
	b.Buffer.Write(p[:min(len(p), max(0, maxToolOutput-b.Len()))])
	return len(p), nil
}
