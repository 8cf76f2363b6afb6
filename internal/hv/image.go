package hv

import "context"

// ImageDriver works on disk images for one kind of driver. It needs no VM, and no directory of a driver.
type ImageDriver interface {
	// Format returns the format of the disks of new templates.
	Format() string
	// Check refuses an image that is not of its format or refers to other files, and returns the
	// number of bytes that a guest sees.
	Check(ctx context.Context, disk Disk) (int64, error)
	// Create makes an empty image; the path must not exist.
	Create(ctx context.Context, disk Disk, bytes int64) error
	// Convert copies an image into one of another format; its path must not exist.
	Convert(ctx context.Context, from, to Disk) error
}
