package qemu

import (
	"context"

	"github.com/buildyard/buildyard/internal/hv"
)

// Images checks, creates and converts disk images with qemu-img.
type Images struct{}

var _ hv.ImageDriver = Images{}

// Format implements hv.ImageDriver.
func (Images) Format() string { return "qcow2" }

// Check implements hv.ImageDriver.
func (Images) Check(ctx context.Context, d hv.Disk) (int64, error) {
	i, err := ImageInfo(ctx, d.Path, d.Format)
	return i.VirtualSize, err
}

// Create implements hv.ImageDriver.
func (Images) Create(ctx context.Context, d hv.Disk, bytes int64) error {
	return CreateDisk(ctx, d.Path, d.Format, bytes)
}

// Convert implements hv.ImageDriver.
func (Images) Convert(ctx context.Context, from, to hv.Disk) error { return Convert(ctx, from, to) }
