package qemu

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// PluggedKinds returns the emulated USB devices that QEMU has, by position.
func PluggedKinds(ctx context.Context, d *Driver, id string) ([]string, error) {
	_, r, err := d.runningMachine(id)
	if err != nil {
		return nil, err
	}
	q, err := r.awaitMonitor(ctx)
	if err != nil {
		return nil, err
	}
	plugged, err := pluggedUSB(ctx, q)
	if err != nil {
		return nil, err
	}
	var kinds []string
	for _, id := range slices.Sorted(maps.Keys(plugged)) {
		var kind string
		if err := q.call(ctx, "qom-get", map[string]string{"path": "/machine/peripheral/" + id, "property": "type"},
			&kind); err != nil {
			return nil, err
		}
		kinds = append(kinds, strings.TrimPrefix(kind, "usb-"))
	}
	return kinds, nil
}

// SetUSB has the driver look for the host's USB devices elsewhere.
func (d *Driver) SetUSB(tree, nodes string) { d.usb = usbHost{tree, nodes} }

// SetStep has f called before each durable step of a start or a removal.
func (d *Driver) SetStep(f func(name string)) { d.stepHook = f }

// Boots tries the boot sector under an accelerator.
var Boots = (*Driver).bootsUnder

// GuardEvery sets how often the firewall's rules are restored.
func (o *Options) GuardEvery(t time.Duration) { o.firewallInterval = t }

// Firewall has the rules loaded by a program that is not nft.
func (o *Options) Firewall(program string) { o.nftProgram = program }

// WeakCgroups creates cgroups also where they cannot have limits.
func (o *Options) WeakCgroups() { o.allowWeakCgroups = true }

// DirOf returns the directory of a VM.
func DirOf(d *Driver, id string) string { return filepath.Join(d.opts.Dir, id) }

// Answers reports whether a VM's QEMU runs and has answered at its monitor: it has its files then,
// and its host ports, too.
func Answers(d *Driver, id string) bool {
	_, r, err := d.runningMachine(id)
	if err != nil {
		return false
	}
	_, linked := r.currentQMP()
	return linked
}

// CutMonitor ends the current connection to a VM's QEMU.
func CutMonitor(d *Driver, id string) {
	if _, r, err := d.runningMachine(id); err == nil {
		if q, ok := r.currentQMP(); ok {
			_ = q.conn.Close()
		}
	}
}
