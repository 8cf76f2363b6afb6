package qemu

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/buildyard/buildyard/internal/hv"
)

var _ hv.DiskMover = (*Driver)(nil)

// SocketUser is hv.DiskMover.SocketUser.
func (d *Driver) SocketUser(id string) (processFile string, group int) {
	group = -1
	if d.qemuCredential != nil {
		group = int(d.qemuCredential.Gid)
	}
	return filepath.Join(d.opts.Dir, id, pidFile), group
}

// UseFile is hv.DiskMover.UseFile: the block node of the server is replaced by one of the file below the lowest layer
// that rests on it, and removed. After an interruption, the next call does what is left.
func (d *Driver) UseFile(ctx context.Context, id string, disk int) error {
	m, err := d.findMachine(id)
	if err != nil {
		return err
	}
	if err := m.useFile(ctx, disk); err != nil {
		return fmt.Errorf("qemu: move disk %d of VM %s to its file: %w", disk, id, err)
	}
	return nil
}

// errStarting reports that QEMU is about to be started with the socket, for the first time or once more.
var errStarting = errors.New("the VM is being started; retry when it runs")

// useFile runs while no save changes the nodes.
func (m *machine) useFile(ctx context.Context, disk int) error {
	if err := m.saveLock.lock(ctx); err != nil {
		return err
	}
	defer m.saveLock.unlock()
	m.mu.Lock()
	r, spec := m.run, m.config.Spec
	m.mu.Unlock()
	isStarting := m.starts.Load() > 0
	if disk < 0 || disk >= len(spec.Disks) {
		return fmt.Errorf("it has %d disks", len(spec.Disks))
	}
	if spec.Disks[disk].Socket == "" {
		return nil
	}
	if r == nil && isStarting {
		return errStarting
	}
	if r != nil {
		q, err := r.awaitMonitor(ctx)
		if err == nil {
			err = m.replaceBase(ctx, q, disk, spec.Disks[disk])
		}
		if errors.Is(err, errProcessGone) && isStarting {
			return errStarting
		}
		if err != nil && !errors.Is(err, errProcessGone) {
			return err
		}
	}
	return m.updateConfig(func(c *vmConfig) {
		c.Spec = c.Spec.Clone()
		c.Spec.Disks[disk].Socket = ""
	})
}

// replaceBase replaces the node of a disk's server by that of its file.
func (m *machine) replaceBase(ctx context.Context, q *qmpConn, disk int, base hv.Disk) error {
	nodes, err := queryNodes(ctx, q)
	if err != nil {
		return err
	}
	remote, local := layerName(disk, 0), layerName(disk, 0)+localNode
	if !nodes[local] {
		if err := addBaseFile(ctx, q, disk, base); err != nil {
			return err
		}
	}
	if !nodes[remote] {
		return nil
	}
	above := m.lowestLayer(disk, base)
	above["backing"] = local
	if err := q.call(ctx, "blockdev-reopen", map[string]any{"options": []any{above}}, nil); err != nil {
		return err
	}
	return q.call(ctx, "blockdev-del", map[string]string{"node-name": remote}, nil)
}

// localNode ends the name of the node of a base that was moved to its file.
const localNode = "-local"

// addBaseFile adds the node of a base's file.
func addBaseFile(ctx context.Context, q *qmpConn, disk int, base hv.Disk) error {
	f, size, err := openBase(hv.Disk{Path: base.Path, Format: base.Format})
	if err != nil {
		return err
	}
	defer f.Close()
	if size != base.Bytes {
		return fmt.Errorf("the file has %d bytes instead of %d", size, base.Bytes)
	}
	set := overlayFdSet(disk, 0) // which is on the command line, under another number
	if err := q.callWithFile(ctx, "add-fd", map[string]int{"fdset-id": set}, f); err != nil {
		return err
	}
	node := layerNode(layerFile{blockNode: layerName(disk, 0) + localNode, format: base.Format},
		fmt.Sprintf("/dev/fdset/%d", set), nil)
	return q.call(ctx, "blockdev-add", node, nil)
}

// lowestLayer returns the options of the node that rests on a disk's base, without those below it.
func (m *machine) lowestLayer(disk int, base hv.Disk) map[string]any {
	name, generations := layerName(disk, 1), m.generations()
	node := map[string]any{"driver": "qcow2", "read-only": true}
	if len(base.Deltas) == 0 {
		name = overlayName(disk, generations[0])
		node = overlayNode(disk, generations[0], "", m.driver.opts.UnsafeCache)
		if len(generations) > 1 { // a save has put another one above it
			node["read-only"] = true
		}
	}
	node["node-name"], node["file"] = name, name+fileNode
	return node
}

// queryNodes returns the names of all block nodes.
func queryNodes(ctx context.Context, q *qmpConn) (map[string]bool, error) {
	var list []struct {
		Name string `json:"node-name"`
	}
	if err := q.call(ctx, "query-named-block-nodes", map[string]bool{"flat": true}, &list); err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, n := range list {
		names[n.Name] = true
	}
	return names, nil
}
