package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/buildyard/buildyard/client"
	"github.com/buildyard/buildyard/internal/hv/cliproc"
)

// otherVM is a VM that another program runs on a Mac.
type otherVM struct {
	mac     *mac
	home    string // TART_HOME
	process cliproc.Process
}

const otherName = "other"

// runOther creates and runs a VM of another program, whose guest has a MAC address unless it is "".
func (m *mac) runOther(ctx context.Context, home, address string) (*otherVM, error) {
	o := &otherVM{mac: m, home: home}
	ipsw := filepath.Join(m.stage.dir, "restore.ipsw")
	if _, err := m.tart(ctx, home, "create", otherName, "--from-ipsw", ipsw, "--disk-size", "1"); err != nil {
		return o, err
	}
	if address != "" {
		if err := o.setMAC(address); err != nil {
			return o, err
		}
	}
	var err error
	o.process, err = cliproc.StartDetached(cliproc.Command{
		Path: filepath.Join(m.fakes, "tart"), Args: []string{"run", "--no-graphics", otherName},
		Env: append(os.Environ(), "TART_HOME="+home, "TART_KNOBS="+m.knobs()),
	}, filepath.Join(m.own, "other.log"))
	if err != nil {
		return o, err
	}
	return o, await(ctx, "the VM of another program to run", func() (bool, error) {
		pid, err := cliproc.LockOwner(o.config())
		return pid != 0, err
	})
}

func (o *otherVM) config() string { return filepath.Join(o.home, "vms", otherName, "config.json") }

func (o *otherVM) setMAC(address string) error {
	raw, err := os.ReadFile(o.config())
	if err != nil {
		return err
	}
	var fields map[string]any
	if err := json.Unmarshal(raw, &fields); err != nil {
		return err
	}
	fields["macAddress"] = address
	if raw, err = json.Marshal(fields); err != nil {
		return err
	}
	return os.WriteFile(o.config(), raw, 0o600)
}

// isRunning reports whether the VM runs.
func (o *otherVM) isRunning() bool {
	pid, err := cliproc.LockOwner(o.config())
	return err == nil && pid != 0
}

// end stops the VM as its owner does, and removes it.
func (o *otherVM) end(ctx context.Context) error {
	_, err := o.mac.tart(ctx, o.home, "stop", otherName)
	if _, failed := errors.AsType[*exec.ExitError](err); failed && strings.Contains(err.Error(), "not running") {
		err = nil
	}
	_, gone := o.mac.tart(ctx, o.home, "delete", otherName)
	return errors.Join(err, gone)
}

// sameMAC: tart assigns a VM another address if a VM of another program has it. An address that was requested is then
// refused, and the other VM continues.
func sameMAC(ctx context.Context, a *caseRun) error {
	const address = lastMAC
	other, err := a.mac.runOther(ctx, a.mac.home(), address)
	if err == nil {
		err = a.failing(ctx, client.StartRequest{MACAddress: address}, "MAC address "+address+" is in use")
		a.check(other.isRunning(), "the VM of the other program runs")
	}
	return errors.Join(err, other.end(ctx))
}
