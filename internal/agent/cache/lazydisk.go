package cache

import (
	"context"
	"fmt"
)

// LazyDisk is a disk of which parts are missing.
type LazyDisk struct {
	Socket string // where an NBD server serves it
	Bytes  int64  // size
}

// ServeDisks opens the disks of a version that are not here as a whole for a VM, and returns them by the names of their
// files; none for a cached version. processFile names the file that has the VM's process, see lazyfill.VM. The caller
// has pinned the version, with the VM's ID as the holder.
func (c *Cache) ServeDisks(ctx context.Context, contentID, vm, processFile string) (map[string]LazyDisk, error) {
	c.mu.Lock()
	l := c.startableLocked(contentID)
	isCached := c.entries[contentID] != nil
	c.mu.Unlock()
	if !isCached && c.isEndingLazily(contentID) {
		return nil, fmt.Errorf("open the disks of version %s: its pull has failed; the next start pulls it again",
			contentID)
	}
	if isCached || l == nil {
		return nil, nil
	}
	sockets, err := l.supervisor.Serve(ctx, vm, processFile)
	if err != nil {
		return nil, fmt.Errorf("open the disks of version %s: %w", contentID, err)
	}
	state, disks := l.supervisor.State(), map[string]LazyDisk{}
	for name, socket := range sockets {
		disks[name] = LazyDisk{Socket: socket, Bytes: state.Disks[name].Size}
	}
	return disks, nil
}

// ReleaseDisks closes the disks that were opened for a VM, after it was moved to the files.
func (c *Cache) ReleaseDisks(ctx context.Context, contentID, vm string) error {
	c.mu.Lock()
	l := c.lazyPulls[contentID]
	c.mu.Unlock()
	if l == nil {
		return nil
	}
	return l.supervisor.Release(ctx, vm)
}

// MarkBooted notes that a VM with disks of ServeDisks has booted. What it read is sent to the registry for later boots.
func (c *Cache) MarkBooted(ctx context.Context, contentID string) error {
	c.mu.Lock()
	l := c.lazyPulls[contentID]
	c.mu.Unlock()
	if l == nil {
		return nil
	}
	return l.supervisor.MarkBooted(ctx)
}
